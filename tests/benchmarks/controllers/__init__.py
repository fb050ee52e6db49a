"""Benchmark of the controllers; ``python -m tests.benchmarks.controllers``."""
