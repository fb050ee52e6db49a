"""Benchmark of the predictor of throughput and power."""
