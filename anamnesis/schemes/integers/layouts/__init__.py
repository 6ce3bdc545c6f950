"""Whose integers lie how: a file for each producer, with names, shapes and what configs say."""
