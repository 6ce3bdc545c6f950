"""Bands made on a few threads, handed to a sink, counted, and read back."""
