"""Profiles the host: Python calls of some steps with cProfile, and memory by source line."""

from energy_callbacks.profiling.host.profiler import HostProfiler

__all__ = ["HostProfiler"]
