"""Benchmarks of controllers: tasks, the runs of a benchmark, and their summary and page."""
