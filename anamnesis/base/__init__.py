"""What everything builds on: stored tensors, dtypes, errors, limits, levels."""
