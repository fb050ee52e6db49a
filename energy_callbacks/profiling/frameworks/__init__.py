"""The profilers of frameworks; each framework is imported when it is in use."""
