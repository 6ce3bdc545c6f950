"""Stored tensors seen otherwise: views, nibbles, tiles, transposes, grids."""
