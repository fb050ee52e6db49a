"""Carbon intensity of the electricity over time."""
