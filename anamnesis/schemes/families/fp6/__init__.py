"""6-bit floats with a power of two for each 32: MXFP6."""
