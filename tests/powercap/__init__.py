"""Tests of energy_callbacks.powercap."""
