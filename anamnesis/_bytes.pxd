"""What both C extensions say of bytes and sizes. There is nothing here to import."""

from libc.stdint cimport uint8_t, uint64_t


cdef extern from "amn_bytes.h" nogil:
    ctypedef struct amn_bytes:
        const uint8_t *data
        uint64_t n_bytes

    ctypedef struct amn_buffer:
        uint8_t *data
        uint64_t n_bytes


cdef inline uint64_t size_of(object value, str name) except? 0:
    """Return an int of any size from a file's header as 64 bits."""
    if not 0 <= value < 1 << 64:
        raise ValueError(f"{name} must be between 0 and 2**64 - 1, not {value}")
    return value
