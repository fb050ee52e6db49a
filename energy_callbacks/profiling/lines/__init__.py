"""Profiles the user's Python code: time and energy by line and by function."""

from energy_callbacks.profiling.lines.profiler import LineProfiler

__all__ = ["LineProfiler"]
