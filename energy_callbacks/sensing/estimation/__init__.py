"""Energy between two moments, from power readings and energy counters."""
