"""Profiles GPU kernels: their time, the energy attributed to them, and causes of idle time."""

from energy_callbacks.profiling.kernels.profiler import KernelProfiler

__all__ = ["KernelProfiler"]
