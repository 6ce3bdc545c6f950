"""Models of one naming seen as models of another: a Hugging Face directory and a GGUF."""
