"""Power limits and locked clocks: finds the best setting during a training, and restores it."""

from energy_callbacks.powercap.optimizer import PowerLimitOptimizer

__all__ = ["PowerLimitOptimizer"]
