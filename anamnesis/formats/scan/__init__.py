"""What the pickles in a file refer to, with a verdict."""
