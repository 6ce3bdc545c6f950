"""Bytes by offset: files, memory, streams, and bytes seen otherwise."""
