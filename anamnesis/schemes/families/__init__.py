"""The families of encodings: a folder each, whose files are called alike."""
