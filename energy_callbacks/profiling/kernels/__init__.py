"""Profiles kernels: which ran, what the device waited for, and the energy attributed to each."""

from energy_callbacks.profiling.kernels.profiler import KernelProfiler

__all__ = ["KernelProfiler"]
