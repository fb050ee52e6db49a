"""Profilers, which measure parts of a training in detail and add their results to its report."""

from energy_callbacks.profiling.zoo.quick import QuickProfile, run_quick_profile

__all__ = ["QuickProfile", "run_quick_profile"]
