"""An output that appears whole or not at all, and that a later run takes up."""
