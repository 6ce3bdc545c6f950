"""Each file of an output to the byte, before any data is read."""
