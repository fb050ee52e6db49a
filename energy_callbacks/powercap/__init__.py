"""Power limits and locked clocks: finds the best setting during a training, and restores it."""
