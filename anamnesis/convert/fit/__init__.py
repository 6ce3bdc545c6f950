"""Types for a size: which of GGUF's types each tensor gets, for the least error."""
