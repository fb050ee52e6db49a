"""Traces of profilers, parsed into kernels, spans and stacks."""
