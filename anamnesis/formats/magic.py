"""The bytes that files of each format begin with."""

GGUF_MAGIC = b"GGUF"
NPY_MAGIC = b"\x93NUMPY"
ZIP_MAGIC, ZIP_END_MAGIC = b"PK\x03\x04", b"PK\x05\x06"
ZIP_MAGICS = (ZIP_MAGIC, ZIP_END_MAGIC)  # an empty archive begins with its end
PICKLE_MAGICS = (b"\x80", b"L")  # of protocol 2, and of 0 where PyTorch's number follows
TORCH_MAGIC = 0x1950A86A20F9469CFC6C  # pickled, before PyTorch 1.6
