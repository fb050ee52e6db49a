"""Joules by line and function of the user's own Python."""

from energy_callbacks.profiling.lines.profiler import LineProfiler

__all__ = ["LineProfiler"]
