"""The search over batch sizes: trials, the cost curve through them, the next size to try."""
