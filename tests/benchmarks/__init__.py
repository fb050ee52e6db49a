"""Speed, overhead and accuracy beside peers.

``python -m tests.benchmarks.NAME [--quick] [--json FILE]``
"""
