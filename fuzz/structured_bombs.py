"""Files that repeat a few bytes of a fuzzer up to 64 KB: what one opcode, entry or member costs.

Only the shortest inputs are of use: a unit is what a few choices make, and it is pumped.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from bombs import BOMBS, MOST, Files
from bombs.made import filled
from bombs.pickles import archive, npy_of, text
from bombs.tensors import ITEMS, state, tensor
from structured import CONFIGS, DIMS, HEADS, SCRAPS, TAILS, Choices
from structured_pickle import GLOBALS

from helpers.gguf_handmade import ARRAY, STRING, U8, Raw, Tensor, Writer, gguf_bytes
from helpers.handmade import file_bytes
from helpers.zip_handmade import Member, extra, zip_bytes

MOST_UNITS = 6
MEMO = 4
OPCODES = b"0Nh\0h\1h\2h\3K\1)]}\x8f2(teulsaR\x81\x85\x86\x87\x90\x91\x93\x94Qbo\x8a\1\1"
DIRECTORY_FILES = (
    *("config.json", "model.safetensors.index.json", "hf_quant_config.json"),
    *("quantize_config.json", "params.json", "tokenizer.json"),
)
FILE_SCRAPS = (*("-", ".", "_", "fp8", "scaled", "e4m3", "int8", "q4_k_m", "dynamic", "1", "of"),)


def bomb_file(choices: Choices) -> Files:
    """Return a file, or a directory's files, by name."""
    kinds: tuple[Callable[[Choices], Files], ...] = (
        *(_pickle, _pickle, _torch, _safetensors, _gguf_keys, _gguf_tensors),
        *(_zip, _npy, _beside, _name, _known),
    )
    return choices.pick(kinds)(choices)


def _known(choices: Choices) -> Files:
    """Return one of the bombs of old, of some size."""
    name = sorted(BOMBS)[(choices.below(256) * 256 + choices.below(256)) % len(BOMBS)]
    return BOMBS[name](MOST >> choices.below(6))


def _unit(choices: Choices, piece: Callable[[Choices], bytes]) -> bytes:
    return b"".join(piece(choices) for _ in range(1 + choices.below(MOST_UNITS)))


def _pickle(choices: Choices) -> Files:
    head = b""
    for at in range(choices.below(MEMO + 1)):
        head += _memoised(choices, MOST // 6) + b"q%c0" % at
    unit = _unit(choices, _opcode) or b"N"
    body = b"\x80\x04" + head + filled(unit, MOST - len(head) - 500)
    body += choices.pick((b".", b"t.", b"l.", b"\x85.", b""))
    if choices.below(4) == 0:
        return {"x.pkl": body}
    return {"x.pth": archive(body, [Member(b"a/data/0", bytes(64))])}


def _memoised(choices: Choices, room: int) -> bytes:
    """Return what makes a value to be used again: something long, or a global."""
    match choices.below(6):
        case 0:
            return text(filled(choices.some(1 + choices.below(4)), room).decode("latin-1"))
        case 1:
            return b"(" + filled(_opcode(choices), room) + choices.pick((b"t", b"l", b"d"))
        case 2:
            return b"}(" + filled(lambda i: b"J" + i.to_bytes(4, "little") + b"N", room) + b"u"
        case _:
            return b"c" + choices.pick(GLOBALS).replace(" ", "\n").encode() + b"\n"


def _opcode(choices: Choices) -> bytes:
    at = choices.below(len(OPCODES))
    return OPCODES[at : at + 1 + choices.below(2)]


def _dims(choices: Choices, most: int = 8) -> tuple[int, ...]:
    return tuple(choices.pick(DIMS) for _ in range(choices.below(most)))


def _torch(choices: Choices) -> Files:
    """Return tensors of any strides over a storage that deflates well."""
    kind = choices.pick(tuple(ITEMS))
    method = choices.pick((0, 8))
    n = choices.pick((1, 64, 1000, 40_000)) * (800 if method else 1)
    tensors = []
    for _ in range(1 + choices.below(3)):
        shape = tuple(1 + choices.below(255) ** 2 for _ in range(choices.below(5)))
        strides = tuple(choices.below(256) * choices.pick((0, 1, 16, 300)) for _ in shape)
        tensors += [tensor(shape, strides, n // ITEMS[kind], kind)] * choices.pick((1, 1, 20, 200))
    return {"x.pth": archive(state(*tensors)[:MOST], [Member(b"a/data/0", bytes(n), method)])}


def _scrap(choices: Choices) -> bytes:
    words = (*SCRAPS, *HEADS, *TAILS)
    return choices.pick(words).encode("utf-8", "surrogatepass")


def _numbered(choices: Choices, piece: Callable[[Choices], bytes]) -> Callable[[int], bytes]:
    """Return a unit that takes a number, or not."""
    unit, end = _unit(choices, piece), choices.pick((b"", b".weight", b",", b'"'))
    numbered = choices.below(4) > 0
    return lambda i: (unit + (b"%d" % i if numbered else b"") + end) or b" "


def _entry(choices: Choices) -> Callable[[int], bytes]:
    names = [choices.pick(HEADS).replace("\n", "\\n") for _ in range(1 + choices.below(3))]
    tails = [choices.pick(TAILS) for _ in range(1 + choices.below(4))]
    dtypes = [choices.pick(("F8_E4M3", "F32", "U8", "I32", "F16")) for _ in tails]
    shape = ",".join(map(str, _dims(choices, 4)))
    n = len(tails)
    return lambda i: (
        f'"{".".join(names)}.{i // n}{tails[i % n]}":{{"dtype":"{dtypes[i % n]}",'
        f'"shape":[0{"," * bool(shape)}{shape}],"data_offsets":[0,0]}},'.encode()
    )


def _json(choices: Choices, room: int) -> bytes:
    unit = _numbered(choices, _scrap)
    opening, closing = choices.pick(((b"", b""), (b'{"a":"', b'"}'), (b'{"a":[', b"]}")))
    return opening + filled(unit, room - 16) + closing


def _safetensors(choices: Choices) -> Files:
    room = MOST - 64
    match choices.below(4):
        case 0:
            header = _json(choices, room)
        case 1:
            told = json.dumps(_json(choices, room // 2).decode("latin-1"))[: room - 64]
            header = b'{"__metadata__":{"_quantization_metadata":%s}}' % told.encode()
        case _:
            header = b"{" + filled(_entry(choices), room)[:-1] + b"}"
    return {"model.safetensors": file_bytes(header)}


def _gguf_keys(choices: Choices) -> Files:
    writer = Writer(3, choices.below(2) == 1)
    unit = _unit(choices, lambda c: c.pick((b"\0", b"\1", b"\xff")) * (1 + c.below(12)))
    room = MOST - 200
    if choices.below(2):
        kind, n = choices.below(14), choices.pick((0, 1, len(unit), room // 8, room // 12, room))
        head = writer.pack("I", kind) + writer.length(n)
        inner = writer.pack("I", choices.pick((U8, ARRAY, STRING))) + writer.length(
            choices.below(3)
        )
        items = filled(choices.pick((unit, inner)), room)
        return {"x.gguf": gguf_bytes({"k": Raw(ARRAY, head + items)}, big=writer.order == ">")}
    kind = choices.below(13)
    keys = {f"{i}": Raw(kind, unit) for i in range(room // (len(unit) + 17))}
    return {"x.gguf": gguf_bytes(keys, big=writer.order == ">")}


def _gguf_tensors(choices: Choices) -> Files:
    dims, kind = _dims(choices, 5), choices.below(40)
    name = choices.pick(HEADS) + choices.pick(TAILS)
    made = Tensor((*dims, 0), kind)
    room = MOST // (24 + len(name.encode()) + 5 + 8 * len(made.dims)) - 4
    return {"x.gguf": gguf_bytes({}, {f"{i}{name}": made for i in range(room)})}


def _zip(choices: Choices) -> Files:
    head = _unit(choices, lambda c: c.pick((b"a", b"/", b"data/", b".", b"a" * 200)))
    end = choices.pick((b".npy", b".pkl", b"", b"/"))
    data = choices.some(choices.below(64)) if choices.below(2) else bytes(choices.below(256) ** 2)
    field = extra(choices.below(4), bytes(choices.below(64)))
    local = {"extra": field} if choices.below(4) == 0 else {}
    method = choices.pick((0, 8))
    one = Member(head + end, data, method)
    n = MOST // (76 + 2 * len(head + end) + 12 + len(one.packed()) + len(local and field)) - 1
    members = (
        Member(head + b"%d" % i + end, data, method, raw=one.packed(), local=local)
        for i in range(max(0, n))
    )
    return {choices.pick(("x.npz", "x.zip", "x.pth")): zip_bytes(members)}


def _npy(choices: Choices) -> Files:
    unit = _unit(choices, lambda c: c.pick((b"(", b"[", b"'a'", b",", b"1", b" ", b"-", b"{")))
    where = choices.pick(("'descr': ", "'descr': '<f4', 'fortran_order': False, 'shape': ("))
    end = choices.pick((b"", b")}", b"), }", b"]}"))
    header = b"{" + where.encode() + filled(unit, MOST - 300) + end
    array = npy_of(header, bytes(4))
    return {"x.npz": zip_bytes([Member(b"a.npy", array)])} if choices.below(2) else {"x.npy": array}


def _beside(choices: Choices) -> Files:
    """Return a model with a file beside it that has a lot to say."""
    entries = b"{" + filled(_entry(choices), MOST // 3)[:-1] + b"}"
    told = _json(choices, MOST // 2)
    config = json.dumps(choices.pick(CONFIGS)).encode()
    if config.endswith(b"}}"):
        told = config[:-2] + b',"ignore":[' + told + b"]}}"
    return {"model.safetensors": file_bytes(entries), choices.pick(DIRECTORY_FILES): told}


def _name(choices: Choices) -> Files:
    words = [choices.pick(FILE_SCRAPS) for _ in range(1 + choices.below(4))]
    name = choices.pick(("m", "m-fp8", "x-00001-of-99999")) + "-".join(["", *words]) * 80
    tail = choices.pick(("", "-x", "-00001-of-99999"))
    file = b"GGUF" + bytes(20) if choices.below(2) else file_bytes("{}")
    return {name[: 200 - len(tail)] + tail + choices.pick((".gguf", ".safetensors", "")): file}
