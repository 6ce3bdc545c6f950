"""A machine that runs pickles and executes nothing."""
