"""Architectures: Hugging Face's models as llama.cpp's, and back, as rows of data."""
