"""The benchmark of simulated GPUs: ``python -m tests.benchmarks.simulated_gpu``."""
