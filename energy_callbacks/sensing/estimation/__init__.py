"""Computes the energy between two moments, from power readings and energy counters."""
