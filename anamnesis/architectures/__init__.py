"""By which a Hugging Face model is seen as a GGUF model, and back."""
