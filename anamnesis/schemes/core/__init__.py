"""What all families share: weights, codes, layouts, functions on arrays."""
