"""Profilers: objects that look closer at a training, and put what they find into its report."""

from energy_callbacks.profiling.zoo.quick import QuickProfile, run_quick_profile

__all__ = ["QuickProfile", "run_quick_profile"]
