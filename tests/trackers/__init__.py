"""Experiment trackers in tests: fixtures, and what their runs contain."""
