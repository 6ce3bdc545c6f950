"""Headers as known writers spell them, read in C.

Headers spelt otherwise, and what is wrong in one, are left to the parsers in `formats`.
"""

from cpython.buffer cimport PyBuffer_Release
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t

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

    enum:
        AMN_TORCH_LONGEST
        AMN_OP_MARK
        AMN_OP_EMPTY_TUPLE
        AMN_OP_EMPTY_DICT
        AMN_OP_NONE
        AMN_OP_NEWTRUE
        AMN_OP_NEWFALSE
        AMN_OP_BININT1
        AMN_OP_BININT2
        AMN_OP_BININT
        AMN_OP_BINUNICODE
        AMN_OP_TUPLE
        AMN_OP_TUPLE1
        AMN_OP_TUPLE2
        AMN_OP_TUPLE3
        AMN_OP_SETITEM
        AMN_OP_SETITEMS
        AMN_OP_BINGET
        AMN_OP_LONG_BINGET
        AMN_OP_BINPUT
        AMN_OP_LONG_BINPUT
        AMN_OP_GLOBAL
        AMN_OP_REDUCE
        AMN_OP_BUILD

    int amn_torch_operand_bytes(uint8_t opcode) noexcept

    enum:
        AMN_PART_NAME
        AMN_PART_REBUILD
        AMN_PART_WORD
        AMN_PART_KIND
        AMN_PART_KEY
        AMN_PART_LOCATION
        AMN_PART_SAVED
        AMN_PART_SIZES
        AMN_PART_STRIDES
        AMN_PART_ORDERED
        AMN_PART_HOOKS
        AMN_PART_ARGS
        AMN_PART_TENSOR

    ctypedef struct amn_torch_tensor:
        amn_bytes name
        amn_bytes kind_name
        amn_bytes key
        amn_bytes location_name
        uint64_t n_elements
        uint64_t offset
        uint64_t *sizes
        uint64_t *strides
        int n_dims
        bint requires_grad
        uint32_t memoised
        uint32_t *memo
        uint64_t cost
        uint64_t end

    bint amn_torch_tensor_at(
        amn_bytes pickle, uint64_t pos, uint64_t n_memo, const uint16_t *costs,
        amn_torch_tensor *tensor) noexcept


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


# ---- torch's pickles ----

TORCH_LONGEST = AMN_TORCH_LONGEST
USUAL_OPCODES = bytes([
    opcode for opcode in range(256) if amn_torch_operand_bytes(<uint8_t>opcode) >= 0])

cdef enum:
    _OPCODES_AT_ONCE = 1 << 16  # so that signals are seen to
    _REBUILD_ARGS = 6  # of a call of _rebuild_tensor_v2

cdef uint64_t _MOST_ELEMENTS = (1 << 63) - 1


def run_usual(machine, pos, bytes costs not None, types) -> int:
    """Run what usually stands in a torch file's pickle, from `pos` on; return where that ends.

    Tensors as torch.save spells them, with their names, each in one step; and the opcodes that make
    dictionaries of them: constants, short numbers and ASCII, tuples, dictionaries, the memo. All is
    done to the machine's stack, memo and working set that its own handlers would do. It stops
    before whatever else, and before whatever would be an error.

    `costs` are 256 uint16, one for each opcode, and one each for finding a global, for an item of a
    dictionary, and for a slot. `types` are (Builder, rebuild_tensor, dictionary, DTypeGlobal,
    Storage, TorchTensor) of torch_globals.
    """
    cdef amn_torch_tensor t
    cdef amn_bytes src = _of_bytes(machine.data)
    cdef uint64_t at = size_of(pos, "pos"), working_set = machine.working_set, length
    cdef int n_operand
    cdef uint64_t allowed = machine.allowed, frame_end = machine.frame_end, cost, index
    cdef const uint16_t *cost_of = <const uint16_t *>PyBytes_AsString(costs)
    cdef const uint8_t *operand
    cdef Py_ssize_t depth = machine.most_marks, i, n, left = _OPCODES_AT_ONCE
    cdef uint8_t opcode
    cdef dict memo = machine.memo, storages = machine.storages, pairs, named
    cdef list stack = machine.stack, below = machine.below, items
    cdef uint64_t n_folder = len(machine.folder)
    if len(costs) != 518:
        raise ValueError("costs must be of 256 opcodes, of a global, of an item and of a slot")
    src.n_bytes = min(src.n_bytes, frame_end)  # no step leads out of a frame
    if at < src.n_bytes:
        working_set -= cost_of[src.data[at]]  # which the machine has counted
    while at < src.n_bytes and left > 0:
        left -= 1
        opcode = src.data[at]
        if _may_begin_tensor(opcode) and len(below) + 2 <= depth and amn_torch_tensor_at(
                src, at, <uint64_t>len(memo), cost_of, &t):
            cost = t.cost + cost_of[256] * (
                _is_new(&t, AMN_PART_REBUILD) + _is_new(&t, AMN_PART_KIND)
                + _is_new(&t, AMN_PART_ORDERED))
            cost += n_folder + t.key.n_bytes
            cost += cost_of[258] * <uint64_t>(_REBUILD_ARGS + 2 * t.n_dims)
            if working_set + cost > allowed:
                break
            if not _push_tensor(machine, memo, stack, storages, &t, types):
                break
            working_set += cost
            at = t.end
            continue
        cost = cost_of[opcode]
        n_operand = amn_torch_operand_bytes(opcode)
        length = <uint64_t>n_operand
        if n_operand < 0 or working_set + cost > allowed or src.n_bytes - at <= length:
            break
        operand = src.data + at + 1
        n = len(stack)
        if opcode == AMN_OP_BINUNICODE:
            index = _le(operand, 4)
            if index > AMN_TORCH_LONGEST or src.n_bytes - at - 5 < index:
                break
            if not _is_ascii(operand + 4, index) or working_set + cost + index > allowed:
                break
            stack.append(PyUnicode_DecodeUTF8(<const char *>operand + 4, index, "strict"))
            cost += index
            length += index
        elif opcode == AMN_OP_BINPUT or opcode == AMN_OP_LONG_BINPUT:
            if n == 0:
                break
            memo[_le(operand, length)] = stack[n - 1]
        elif opcode == AMN_OP_BINGET or opcode == AMN_OP_LONG_BINGET:
            value = memo.get(_le(operand, length), memo)
            if value is memo:
                break
            stack.append(value)
        elif opcode == AMN_OP_BININT1 or opcode == AMN_OP_BININT2:
            stack.append(_le(operand, length))
        elif opcode == AMN_OP_BININT:
            stack.append(<int32_t>_le(operand, length))
        elif opcode == AMN_OP_EMPTY_DICT:
            stack.append({})
        elif opcode == AMN_OP_EMPTY_TUPLE:
            stack.append(())
        elif opcode == AMN_OP_NONE:
            stack.append(None)
        elif opcode == AMN_OP_NEWTRUE:
            stack.append(True)
        elif opcode == AMN_OP_NEWFALSE:
            stack.append(False)
        elif opcode == AMN_OP_MARK:
            if len(below) >= depth:
                break
            below.append(stack)
            stack = []
        elif opcode == AMN_OP_TUPLE:
            if len(below) == 0:
                break
            items = stack
            stack = below.pop()
            stack.append(tuple(items))
        elif opcode == AMN_OP_TUPLE1 or opcode == AMN_OP_TUPLE2 or opcode == AMN_OP_TUPLE3:
            i = n - (opcode - AMN_OP_TUPLE1 + 1)
            if i < 0:
                break
            stack[i:] = (tuple(stack[i:]),)
        elif opcode == AMN_OP_SETITEMS:
            if len(below) == 0 or not below[len(below) - 1]:
                break
            items = below[len(below) - 1]
            target = items[len(items) - 1]
            cost += cost_of[257] * <uint64_t>n
            if type(target) is not dict or n % 2 or working_set + cost > allowed:
                break
            if not _are_names(stack):
                break
            named = dict(zip(stack[::2], stack[1::2]))
            pairs = target
            if len(named) < n // 2 or not pairs.keys().isdisjoint(named):  # a key comes twice
                break
            pairs.update(named)
            stack = below.pop()
        elif opcode == AMN_OP_SETITEM:
            cost += cost_of[257] * 2
            if n < 3 or type(stack[n - 3]) is not dict or type(stack[n - 2]) is not str:
                break
            if working_set + cost > allowed:
                break
            pairs = stack[n - 3]
            if stack[n - 2] in pairs:
                break
            pairs[stack[n - 2]] = stack[n - 1]
            del stack[n - 2:]
        elif opcode == AMN_OP_REDUCE:
            if n < 2 or type(stack[n - 1]) is not tuple or stack[n - 1]:
                break
            target = stack[n - 2]
            if type(target) is not types[0] or target.build is not types[2]:
                break
            stack[n - 2:] = ({},)
        elif opcode == AMN_OP_BUILD:
            if n < 2 or type(stack[n - 2]) is not dict:
                break
            machine.build(stack[n - 2], stack[n - 1])
            del stack[n - 1]
        else:
            break
        working_set += cost
        at += 1 + length
    machine.stack = stack
    if at > <uint64_t>pos:
        machine.working_set = working_set
    return at


cdef uint64_t _le(const uint8_t *data, uint64_t n_bytes) noexcept:
    cdef uint64_t value = 0, i
    for i in range(n_bytes):
        value |= <uint64_t>data[i] << (8 * i)
    return value


cdef inline bint _may_begin_tensor(uint8_t opcode) noexcept:
    return opcode == AMN_OP_BINUNICODE or opcode == AMN_OP_GLOBAL or opcode == AMN_OP_BINGET


cdef bint _is_ascii(const uint8_t *text, uint64_t n_bytes) noexcept:
    cdef uint8_t every = 0
    cdef uint64_t i
    for i in range(n_bytes):
        every |= text[i]
    return every < 0x80


cdef bint _are_names(list flat):
    """Whether every other value, from the first on, is a string."""
    cdef Py_ssize_t i
    for i in range(0, len(flat), 2):
        if type(flat[i]) is not str:
            return False
    return True


cdef inline bint _is_new(amn_torch_tensor *t, int part) noexcept:
    """Whether the pickle memoises this part here, in place of fetching it."""
    return t.memoised >> part & 1


cdef int _memoise(dict memo, amn_torch_tensor *t, int part, value) except -1:
    if _is_new(t, part):
        memo[t.memo[part]] = value
    return 0


cdef bint _push_tensor(
        machine, dict memo, list stack, dict storages, amn_torch_tensor *t, types) except -1:
    """Push one and memoise its parts, all or nothing; whether the opcodes would do so too."""
    cdef int i
    cdef uint64_t n = 1
    builder, rebuild_tensor, dictionary, dtype_global, storage_type, tensor_type = types
    find = machine.find_global
    try:
        rebuild = (
            find("torch._utils", "_rebuild_tensor_v2") if _is_new(t, AMN_PART_REBUILD)
            else memo[t.memo[AMN_PART_REBUILD]])
        word = "storage" if _is_new(t, AMN_PART_WORD) else memo[t.memo[AMN_PART_WORD]]
        kind = (
            find("torch", _text(t.kind_name)) if _is_new(t, AMN_PART_KIND)
            else memo[t.memo[AMN_PART_KIND]])
        location = (
            _text(t.location_name) if _is_new(t, AMN_PART_LOCATION)
            else memo[t.memo[AMN_PART_LOCATION]])
        ordered = (
            find("collections", "OrderedDict") if _is_new(t, AMN_PART_ORDERED)
            else memo[t.memo[AMN_PART_ORDERED]])
    except Exception:
        return False  # the opcodes raise it again, and say where
    if not (
            type(rebuild) is builder and rebuild.build is rebuild_tensor
            and type(ordered) is builder and ordered.build is dictionary
            and type(kind) is dtype_global and type(word) is str and word == "storage"):
        return False
    for i in range(t.n_dims):
        if t.sizes[i] > (_MOST_ELEMENTS if n == 0 else _MOST_ELEMENTS // n):
            return False
        n *= t.sizes[i]
    make = tuple.__new__
    key = _text(t.key)
    saved = (word, kind, key, location, t.n_elements)
    where = machine.folder + key
    storage = make(storage_type, (where, kind.dtype, t.n_elements * kind.item_bytes, 0))
    known = storages.get(where)
    if known is None:
        storages[where] = storage
    elif known == storage:
        storage = known
    elif not machine.may_retype:
        return False
    sizes = tuple([t.sizes[i] for i in range(t.n_dims)])
    strides = tuple([t.strides[i] for i in range(t.n_dims)])
    hooks = {}
    tensor = make(tensor_type, (storage, kind.element, t.offset, sizes, strides))
    if _is_new(t, AMN_PART_NAME):
        name = _text(t.name)
        stack.append(name)
        _memoise(memo, t, AMN_PART_NAME, name)
    stack.append(tensor)
    _memoise(memo, t, AMN_PART_REBUILD, rebuild)
    _memoise(memo, t, AMN_PART_WORD, word)
    _memoise(memo, t, AMN_PART_KIND, kind)
    _memoise(memo, t, AMN_PART_KEY, key)
    _memoise(memo, t, AMN_PART_LOCATION, location)
    _memoise(memo, t, AMN_PART_SAVED, saved)
    _memoise(memo, t, AMN_PART_SIZES, sizes)
    _memoise(memo, t, AMN_PART_STRIDES, strides)
    _memoise(memo, t, AMN_PART_ORDERED, ordered)
    _memoise(memo, t, AMN_PART_HOOKS, hooks)
    args = (storage, t.offset, sizes, strides, t.requires_grad, hooks)
    _memoise(memo, t, AMN_PART_ARGS, args)
    _memoise(memo, t, AMN_PART_TENSOR, tensor)
    return True
