"""8-bit floats with scales: FP8 and MXFP8, whoever wrote them."""
