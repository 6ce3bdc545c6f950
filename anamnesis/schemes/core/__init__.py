"""What all families of encodings share: weights, the way there, in-memory plumbing."""
