"""Producers and layouts that hold codes of several families."""
