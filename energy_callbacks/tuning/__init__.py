"""Which batch size to train with: the curve of throughput, energy and memory, and its knee."""
