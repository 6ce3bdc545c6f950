"""What the C extensions say of bytes and sizes. There is nothing here to import."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint64_t


cdef extern from "amn_bytes.h" nogil:
    ctypedef struct amn_bytes:
        const uint8_t *data
        uint64_t n_bytes

    ctypedef struct amn_buffer:
        uint8_t *data
        uint64_t n_bytes
        bint is_streamed


cdef inline uint64_t size_of(object value, str name) except? 0:
    """Return an int of any size from a file's header as 64 bits."""
    if not 0 <= value < 1 << 64:
        raise ValueError(f"{name} must be between 0 and 2**64 - 1, not {value}")
    return value


# A view of any buffer is held until PyBuffer_Release; Cython's own memoryviews would take a third
# of an extension and of the time to load it.

cdef inline amn_bytes held(object data, Py_buffer *view) except *:
    cdef amn_bytes found
    PyObject_GetBuffer(data, view, PyBUF_SIMPLE)
    found.data = <const uint8_t *>view.buf
    found.n_bytes = <uint64_t>view.len
    return found


cdef inline amn_buffer held_to_write(object data, Py_buffer *view) except *:
    cdef amn_buffer found
    PyObject_GetBuffer(data, view, PyBUF_WRITABLE)
    found.data = <uint8_t *>view.buf
    found.n_bytes = <uint64_t>view.len
    found.is_streamed = False
    return found
