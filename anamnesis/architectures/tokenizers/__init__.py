"""Tokenizers: the files of a Hugging Face directory as keys of a GGUF, and back."""

from anamnesis.architectures.tokenizers.folder import Folder
from anamnesis.architectures.tokenizers.read import KINDS, read_vocabulary
from anamnesis.architectures.tokenizers.write import vocabulary_files

__all__ = ["KINDS", "Folder", "read_vocabulary", "vocabulary_files"]
