"""Adapters of low rank, added to the weights of a model."""
