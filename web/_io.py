"""The module `_io` without C: checksums are zlib's where it has none of its own."""

CRC32_BITS = ()
CRC32_SLICE = 1 << 17
