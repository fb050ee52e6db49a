"""The version of this package, where packaging and reports find it."""

__version__ = "0.1.0"
