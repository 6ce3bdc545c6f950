"""ggml's block types: the tensors of GGUF files."""
