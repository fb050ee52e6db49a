"""The search over batch sizes: trials, the curve through them, the next size to try."""
