"""Benchmark of the planner; ``python -m tests.benchmarks.planner``."""
