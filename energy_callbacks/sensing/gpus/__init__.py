"""Which GPUs the machine has, and which of them a run uses."""
