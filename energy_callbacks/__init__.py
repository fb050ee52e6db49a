"""Energy as a training metric: joules beside the loss, a report at the end."""

__version__ = "0.1.0"
