"""Benchmarks of speed, overhead and accuracy, compared with other tools.

``python -m tests.benchmarks.NAME [--quick] [--json FILE]``
"""
