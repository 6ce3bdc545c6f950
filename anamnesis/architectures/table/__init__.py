"""The rows of architectures, and what they compute, a file for each maker."""
