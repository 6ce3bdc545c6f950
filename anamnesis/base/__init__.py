"""What everything stands on: stored tensors, dtypes, errors, limits, levels."""
