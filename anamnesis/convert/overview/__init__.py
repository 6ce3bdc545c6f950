"""One model looked at: what it is made of, layer by layer, and what its numbers show."""
