"""EXL2 of exllamav2: integers of 2 to 8 bits, mixed within a weight."""
