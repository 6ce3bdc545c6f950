"""NumPy's NPY files and NPZ archives."""
