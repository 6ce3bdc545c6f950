"""Files for `scan`, built from a fuzzer's bytes: pickles that hide in what looks like none."""

from __future__ import annotations

import io
import json
import struct
import tarfile
import zipfile

from structured import Choices
from structured_pickle import PLAIN, pickle_of, text, torch_file

MAGIC = b"\x8a\x0a" + (0x1950A86A20F9469CFC6C).to_bytes(10, "little") + b"."
GLOBALS = (
    *("os system", "posix system", "builtins eval", "torch.storage _load_from_bytes"),
    *("collections OrderedDict", "torch FloatStorage", "models.net Net", "copyreg _reconstructor"),
    *("os.path join", "torch._utils _rebuild_tensor_v2", "_codecs encode", "numpy ndarray"),
)
STRINGS = ("os", "system", "collections", "OrderedDict", "torch", "true", "", "é", "a\nb", "0")
NAMES = (
    *("data.pkl", "m/data.pkl", "m/data/0", "m/constants/1", "m/version", "m/code/a.py", "x.bin"),
    *("m/byteorder", "foo.npy", "a.npy", "readme.txt", "w.ckpt", "m/.data/serialization_id"),
    *("constants.pkl", "m/x.debug_pkl", "extra/producer", "m/data/1", "data/0", "version", "W.PKL"),
)
LINES = (
    *(b"I1", b"I01", b"I", b"I0x1f", b"I1\0x", b"I 7 ", b"I017", b"I+5", b"L5L", b"L5\0y", b"L0b1"),
    *(b"F1.5", b"F1\0z", b"Finf", b"F1_0", b"V\\u006fs", b"S'os'", b'S"system"', b"S'\\x6fs'"),
    *(b"Pid", b"I1\r", b"L1\rL", b"S'a'b'", b"S'", b"I9999999999999999999999"),
)
DESCRS = ("|O", "O", "<f4", "<U1", "f4,O", "|O8", "(1,)O", "object", "V8", "\\x4f", "|S3", "=O")


def length8(n: int) -> bytes:
    return struct.pack("<Q", n % 2**64)


def string(choices: Choices) -> bytes:
    """Return an opcode that pushes a string."""
    value = choices.pick(STRINGS)
    raw = value.encode()
    match choices.below(7):
        case 0:
            return text(value)
        case 1:
            return b"\x8d" + length8(len(raw)) + raw
        case 2:
            return b"U" + bytes([len(raw)]) + raw
        case 3:
            return b"T" + struct.pack("<i", len(raw)) + raw
        case 4:
            return b"V" + value.encode("raw-unicode-escape").replace(b"\n", b"\\u000a") + b"\n"
        case _:
            return b"\x8c" + bytes([len(raw)]) + raw


def reference(choices: Choices) -> bytes:
    """Return opcodes that push a global."""
    module, name = choices.pick(GLOBALS).split()
    match choices.below(5):
        case 0:
            return f"c{module}\n{name}\n".encode()
        case 1:
            return f"(i{module}\n{name}\n".encode()
        case 2:
            return text(module) + b"\x94" + text(name) + b"\x94\x93"
        case 3:
            return text(name) + b"q\x070" + text(module) + b"h\x07\x93"
        case _:
            return string(choices) + string(choices) + b"\x93"


def call(choices: Choices) -> bytes:
    arguments = string(choices)
    match choices.below(6):
        case 0:
            return reference(choices) + b"(" + arguments + b"tR"
        case 1:
            return b"(" + reference(choices) + arguments + b"o"
        case 2:
            return reference(choices) + arguments + b"\x85\x81"
        case 3:
            return reference(choices) + b")}\x92"
        case 4:
            return reference(choices) + b")R" + arguments + b"b"
        case _:
            return reference(choices) + b")R(" + arguments + choices.pick((b"e", b"\x90", b"Nu"))


def odd(choices: Choices) -> bytes:
    """Return opcodes that one unpickler or another takes, and that leave the stack as it was."""
    match choices.below(14):
        case 0:
            return choices.pick(LINES) + b"\n0"
        case 1:
            return b"N" + choices.pick((b"(u", b"(e", b"(\x90", b"Nb")) + b"0"
        case 2:
            return choices.pick((b"C\x01a\x980", b"\x96" + length8(1) + b"a\x980", b"\x970"))
        case 3:
            return b"Np" + choices.pick((b"5", b"05", b" 5", b"5\0x", b"+5", b"5_0")) + b"\n0"
        case 4:
            return choices.pick((b"g5\n0", b"g5\0\n0", b"j\5\0\0\0000", b"h\x050"))
        case 5:
            return b"\x80" + bytes([choices.below(8)])
        case 6:
            return b"\x95" + length8(choices.below(64))
        case 7:
            return b"(" + choices.pick((b"1", b"0", b"N1", b"l0", b"NNd0", b"N\x910", b"t0"))
        case 8:
            return choices.pick((b"NQ0", b"\x8b\1\0\0\0\x050", b"G12345678" + b"0", b"N20" + b"0"))
        case 9:
            return choices.pick((b"](NNu0", b"](Ne0", b"}(NNu0", b"\x8f(N\x900", b"N(\x81"))
        case 10:
            return choices.pick((b"\x82\x01", b"\x83\x01\x00", b"\x84\x01\x00\x00\x00")) + b"0"
        case 11:
            return b"B" + struct.pack("<I", 12) + b"\x80\x02cos\nsys\n." + b"0"
        case 12:
            return choices.some(1 + choices.below(3))
        case _:
            return PLAIN[choices.below(len(PLAIN)) :][:1]


def hostile(choices: Choices) -> bytes:
    """Return a pickle, mostly one that runs."""
    pieces = []
    for _ in range(choices.below(8)):
        match choices.below(4):
            case 0:
                pieces.append(call(choices) + b"0")
            case 1:
                pieces.append(string(choices) + b"0")
            case _:
                pieces.append(odd(choices))
    body = b"".join(pieces) + choices.pick((b"N", call(choices))) + b"."
    if choices.below(3) == 0:
        body = framed(choices, body)
    return choices.pick((b"", b"\x80\x02", b"\x80\x04")) + body


def framed(choices: Choices, body: bytes) -> bytes:
    """Return opcodes in frames, which end where they should, or anywhere."""
    at = choices.below(len(body) + 1)
    first = at + choices.below(12) - 4 if choices.below(2) else at
    rest = b"\x95" + length8(len(body) - at + choices.below(3) // 2) if choices.below(2) else b""
    return b"\x95" + length8(max(first, 0)) + body[:at] + rest + body[at:]


def any_pickle(choices: Choices) -> bytes:
    return hostile(choices) if choices.below(4) else pickle_of(choices)


def array(choices: Choices) -> bytes:
    """Return a NumPy file, mostly of objects."""
    shape = choices.pick(("(1,)", "()", "(2,)", "(1, 1)"))
    descr = choices.pick(DESCRS)
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    version = choices.pick((1, 1, 2, 3))
    n = len(header).to_bytes(2 if version == 1 else 4, "little")
    data = any_pickle(choices) if choices.below(3) else choices.some(4)
    return b"\x93NUMPY" + bytes((version, 0)) + n + header + data


def content(choices: Choices) -> bytes:
    match choices.below(5):
        case 0:
            return array(choices)
        case 1:
            return choices.some(choices.below(40))
        case 2:
            return choices.pick((b"hello\n", b"class A:\n  def x(self):\n", b"\x80\x02", b"little"))
        case _:
            return any_pickle(choices)


def archive(choices: Choices) -> bytes:
    """Return a ZIP archive of members of any name, with or without something around it."""
    stream = io.BytesIO()
    method = choices.pick((zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(stream, "w", method) as file:
        if choices.below(2):
            file.writestr("m/data.pkl", pickle_of(choices))
        for name in dict.fromkeys(choices.pick(NAMES) for _ in range(1 + choices.below(4))):
            if name not in file.namelist():
                file.writestr(name, content(choices))
    raw = stream.getvalue()
    match choices.below(12):
        case 0:
            return any_pickle(choices) + raw
        case 1:
            return raw + any_pickle(choices)
        case 2:
            return safetensors(choices, raw)
    return raw


def tar(choices: Choices) -> bytes:
    """Return torch's oldest kind of file, or what looks like it."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as file:
        for name in ("storages", "tensors", "pickle")[choices.below(2) :]:
            data = any_pickle(choices)
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    raw = bytearray(stream.getvalue())
    if choices.below(2):
        head = MAGIC + b"M\xe9\x03.}.}.]."
        raw[: len(head)] = head
        raw[148:156] = b" " * 8
        raw[148:156] = b"%06o\0 " % sum(raw[:512])
    return bytes(raw)


def legacy(choices: Choices) -> bytes:
    """Return torch's pickles one after the other, one of them not what it should be."""
    pickles = [MAGIC, b"M\xe9\x03.", b"}.", pickle_of(choices), b"]."]
    for _ in range(1 + choices.below(2)):
        at = choices.below(len(pickles) + 1)
        pickles[at : at + choices.below(2)] = [any_pickle(choices)]
    return b"".join(pickles) + choices.pick((b"", b"", b"\0", choices.some(8)))


def safetensors(choices: Choices, data: bytes) -> bytes:
    """Return a valid file whose first bytes, and whose header's length, are a pickle's too."""
    opcode = choices.pick(b"XVILFSPcig(Bhpq\x80\x88\x8b\x8d\x8e\x93\x95\x96\x98TU\x8c")
    second = choices.pick(b"\0\0\0010VN.\x80X")
    header = {"a": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}
    raw = json.dumps(header).encode()[:-1]
    n = opcode | second << 8
    if n < len(raw) + 2:
        n += 256
    raw = raw.ljust(n - 2) + choices.pick((b"\n}", b" }"))
    return length8(len(raw)) + raw + data


def gguf(choices: Choices) -> bytes:
    """Return the head of a GGUF file, and a pickle behind it."""
    head = b"GGUF" + bytes((choices.pick((2, 3)), 0, 0, 0))
    return head + bytes(16 * choices.below(2)) + choices.pick((b"", b"\0")) + any_pickle(choices)


def scan_file(choices: Choices) -> bytes:
    """Return a file of any kind that is scanned."""
    match choices.below(12):
        case 0 | 1 | 2:
            return hostile(choices)
        case 3:
            return b"".join(any_pickle(choices) for _ in range(1 + choices.below(3)))
        case 4 | 5:
            return archive(choices)
        case 6:
            return tar(choices)
        case 7:
            return legacy(choices)
        case 8:
            return safetensors(choices, any_pickle(choices))
        case 9:
            return gguf(choices)
        case 10:
            return array(choices)
        case _:
            return torch_file(choices)
