"""One model looked at, layer by layer."""
