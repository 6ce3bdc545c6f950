"""Headers as known writers spell them, read in C.

Headers spelt otherwise, and what is wrong in one, are left to the parsers in `formats`.
"""

from cpython.buffer cimport PyBuffer_Release
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from anamnesis._bytes cimport amn_bytes, held, size_of


cdef extern from "parse/parse.h" nogil:
    bint amn_string_at(
        amn_bytes src, uint64_t pos, int length_bytes, bint big_endian, amn_bytes *string) noexcept
    uint64_t amn_skip_strings(
        amn_bytes src, uint64_t *pos, uint64_t count, int length_bytes, bint big_endian,
        uint64_t longest) noexcept

    ctypedef struct amn_tensor_entry:
        amn_bytes name
        amn_bytes dtype
        uint64_t *shape
        uint64_t *offsets
        int n_dims
        bint another

    bint amn_tensor_entry_at(
        amn_bytes header, uint64_t *pos, amn_tensor_entry *entry) noexcept

    enum:
        AMN_ZIP_LOCAL_BYTES

    ctypedef struct amn_zip_end:
        uint64_t n_entries
        uint64_t n_bytes
        uint64_t start
        uint64_t stop

    bint amn_zip_end_of(amn_bytes end, uint64_t start, amn_zip_end *found) noexcept

    ctypedef struct amn_zip_member:
        amn_bytes name
        uint32_t crc
        uint64_t n_bytes
        uint64_t offset
        int flags

    bint amn_zip_member_at(
        amn_bytes directory, uint64_t *pos, amn_zip_member *member) noexcept
    uint64_t amn_zip_local_bytes(
        amn_bytes local, const amn_zip_member *member) noexcept


cdef extern from "Python.h":
    str PyUnicode_DecodeUTF8(const char *text, Py_ssize_t n_bytes, const char *errors)
    char *PyBytes_AsString(object)
    bytes PyBytes_FromStringAndSize(const char *data, Py_ssize_t n_bytes)


cdef inline str _text(amn_bytes text):
    return PyUnicode_DecodeUTF8(<const char *>text.data, <Py_ssize_t>text.n_bytes, "strict")


cdef amn_bytes _of_bytes(bytes data):
    cdef amn_bytes view
    view.data = <const uint8_t *>PyBytes_AsString(data)
    view.n_bytes = <uint64_t>len(data)
    return view


# ---- GGUF ----

cdef int _length_bytes(object value) except -1:
    if value not in (4, 8):
        raise ValueError(f"length_bytes must be 4 or 8, not {value}")
    return value


def skip_strings(
    src, pos, count, length_bytes, bint big_endian, longest
) -> tuple[int, int]:
    """Step over up to `count` of GGUF's strings from `pos` on.

    Returns where that ends, and how many they were. It stops before a string that is longer than
    `longest` or whose length `src` does not wholly hold, and after one that ends beyond `src`.
    """
    cdef uint64_t at = size_of(pos, "pos"), n = size_of(count, "count"), done
    cdef uint64_t most = min(size_of(longest, "longest"), <uint64_t>1 << 62)
    cdef int width = _length_bytes(length_bytes)
    cdef Py_buffer view
    cdef amn_bytes data = held(src, &view)
    with nogil:
        done = amn_skip_strings(data, &at, n, width, big_endian, most)
    PyBuffer_Release(&view)
    return at, done


def read_strings(
    src, pos, count, length_bytes, bint big_endian
) -> tuple[list[str], int]:
    """Return up to `count` of GGUF's strings from `pos` on, and where they end.

    There are fewer if `src` ends before. Bytes that are not UTF-8 become lone surrogates, as
    `surrogateescape` has it.
    """
    cdef uint64_t at = size_of(pos, "pos"), left = size_of(count, "count")
    cdef int width = _length_bytes(length_bytes)
    cdef amn_bytes string
    cdef list strings = []
    cdef Py_buffer view
    cdef amn_bytes data = held(src, &view)
    try:
        while left and amn_string_at(data, at, width, big_endian, &string):
            if string.n_bytes > data.n_bytes - at - <uint64_t>width:
                break
            strings.append(PyUnicode_DecodeUTF8(
                <const char *>string.data, <Py_ssize_t>string.n_bytes, "surrogateescape"))
            at += <uint64_t>width + string.n_bytes
            left -= 1
    finally:
        PyBuffer_Release(&view)
    return strings, at


# ---- safetensors ----

def tensor_entries(bytes header not None, pos, count) -> tuple[list, int, bool]:
    """Read up to `count` entries of a safetensors header, which is UTF-8, from `pos` on.

    Returns them, where the next would stand, and whether a comma says that there is one. It stops
    before an entry that is not spelt as writers usually do, right or wrong.
    """
    cdef uint64_t at = size_of(pos, "pos"), start = at, left = size_of(count, "count")
    cdef amn_bytes src = _of_bytes(header)
    cdef amn_tensor_entry entry
    cdef bint another = True
    cdef list entries = []
    cdef int i
    while left and another and amn_tensor_entry_at(src, &at, &entry):
        shape = tuple([entry.shape[i] for i in range(entry.n_dims)])
        entries.append(
            (_text(entry.name), _text(entry.dtype), shape, entry.offsets[0], entry.offsets[1],
             start))
        another = entry.another
        start = at
        left -= 1
    return entries, at, another


# ---- ZIP ----

def zip_members(bytes end not None, end_start, make):
    """Read the directory of a ZIP archive of which `end` are the bytes from `end_start` on.

    Returns its length; the members, by name; and where the room of each ends, by header_offset, for
    they follow each other from the archive's first byte to the directory. Members are made as
    `make`, a subclass of tuple, of

        name, method, crc, n_bytes, n_compressed, header_offset, raw_name, flags, header_bytes

    the last of which is the length of the local header if that is in `end`, of the plain kind, and
    says the same as the directory; else 0. None if the directory is not all in `end`, or if it or a
    member is not of the plain kind (stored, small, its name in ASCII, no extra field), right or
    wrong.
    """
    cdef uint64_t start = size_of(end_start, "end_start")
    cdef uint64_t at, n = 0, before = 0, filled = 0, n_header
    cdef amn_bytes tail = _of_bytes(end), directory, local
    cdef amn_zip_end told
    cdef amn_zip_member m
    cdef dict members = {}, ends = {}
    new = tuple.__new__
    if not amn_zip_end_of(tail, start, &told):
        return None
    directory.data = tail.data
    directory.n_bytes = told.stop - start
    at = told.start - start
    while n < told.n_entries and amn_zip_member_at(directory, &at, &m):
        if m.offset < filled or (n == 0 and m.offset > 0):
            return None
        if n:
            ends[before] = m.offset
        n_header = 0
        if start <= m.offset and m.offset - start < tail.n_bytes:
            local.data = tail.data + (m.offset - start)
            local.n_bytes = tail.n_bytes - (m.offset - start)
            n_header = amn_zip_local_bytes(local, &m)
        name = _text(m.name)
        members[name] = new(make, (
            name, "stored", m.crc, m.n_bytes, m.n_bytes, m.offset,
            PyBytes_FromStringAndSize(<const char *>m.name.data, <Py_ssize_t>m.name.n_bytes),
            m.flags, n_header))
        before = m.offset
        filled = m.offset + AMN_ZIP_LOCAL_BYTES + m.name.n_bytes + m.n_bytes
        n += 1
    if (n == 0 or n < told.n_entries or at < directory.n_bytes
            or <uint64_t>len(members) < n or filled > told.start):
        return None
    ends[before] = told.start
    return told.n_bytes, members, ends
