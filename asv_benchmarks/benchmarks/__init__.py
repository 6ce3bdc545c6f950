"""asv's benchmarks, one module for each thing that is measured."""
