"""Tokenizers: the files of a Hugging Face directory as keys of a GGUF, and back."""

from anamnesis.architectures.tokenizers.read import KINDS, read_vocabulary

__all__ = ["KINDS", "read_vocabulary"]
