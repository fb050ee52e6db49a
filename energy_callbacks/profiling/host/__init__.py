"""Where the training thread's time goes: cProfile for some steps, memory line by line."""

from energy_callbacks.profiling.host.profiler import HostProfiler

__all__ = ["HostProfiler"]
