"""Benchmarks: asv's in `benchmarks`, and the comparison with other libraries in `peers`."""
