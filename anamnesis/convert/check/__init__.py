"""Whether a model is whole and sane: values, config, files and hashes."""
