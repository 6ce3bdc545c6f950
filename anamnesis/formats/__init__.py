"""The containers: where the bytes of each stored tensor lie.

They know nothing of encodings.
"""
