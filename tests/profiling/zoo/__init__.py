"""Tests of energy_callbacks.profiling.zoo."""
