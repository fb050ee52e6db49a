"""Tests of the simulated GPU."""
