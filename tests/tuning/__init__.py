"""Tests of energy_callbacks.tuning."""
