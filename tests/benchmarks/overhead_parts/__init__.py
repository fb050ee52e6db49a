"""Parts of the benchmarks of overhead."""
