"""Which kernels ran, what the device waited for, and what share of the joules each has."""

from energy_callbacks.profiling.kernels.profiler import KernelProfiler

__all__ = ["KernelProfiler"]
