"""A model's files as one: a file, a directory of shards, GGUF in parts."""
