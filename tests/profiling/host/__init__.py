"""Tests of energy_callbacks.profiling.host."""
