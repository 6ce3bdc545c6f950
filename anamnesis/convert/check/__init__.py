"""Whether a model is whole and sane: its values, its config, its files, and its hashes."""
