"""The rows of architectures, a file for each maker."""
