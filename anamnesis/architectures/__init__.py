"""Models of one naming seen as models of another: Hugging Face's and GGUF's."""
