"""What the header of a GGUF may hold, whoever reads it."""

GGUF_MAX_TENSORS = 1_000_000
GGUF_MAX_KEYS = 1_000_000
GGUF_MAX_NAME = 65_535  # bytes
GGUF_MAX_DIMS = 8
GGUF_MAX_ELEMENTS = 10**12
GGUF_MAX_ALIGNMENT = 1 << 20  # bytes
GGUF_MAX_KEY = 65_535  # bytes
GGUF_MAX_ARRAY_ITEMS = 16_000_000  # of one key, all levels together
GGUF_MAX_ARRAY_DEPTH = 4
GGUF_MAX_NESTED_ARRAYS = 1_000_000  # in one file; they are stepped over one by one, in Python
GGUF_MAX_STRING = 1 << 24  # bytes; of one metadata string, items of arrays included
