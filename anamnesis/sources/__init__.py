"""Bytes by offset: files, memory, streams, and what shows another's bytes otherwise."""
