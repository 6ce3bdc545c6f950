"""Pickles and torch files built from a fuzzer's bytes."""

from __future__ import annotations

import io
import struct
import zipfile
from math import prod

from structured import Choices

ITEMS = {"Float": 4, "Half": 2, "Byte": 1, "Long": 8, "BFloat16": 2, "ComplexFloat": 8, "Bool": 1}
GLOBALS = (
    *("collections OrderedDict", "torch._utils _rebuild_tensor_v2", "torch FloatStorage"),
    *("torch._utils _rebuild_tensor_v3", "torch.storage UntypedStorage", "torch HalfStorage"),
    *("torch._utils _rebuild_parameter", "torch uint16", "torch float4_e2m1fn_x2", "torch Size"),
    *("torch._utils _rebuild_qtensor", "torch._utils _rebuild_sparse_tensor", "os system"),
    *("torch._tensor _rebuild_from_type_v2", "torch Tensor", "builtins set", "_codecs encode"),
    *("torch.nn.parameter Parameter", "argparse Namespace", "torch ComplexDoubleStorage"),
    *("builtins complex", "builtins bytearray", "collections Counter", "torch.jit._pickle x"),
    *("__torch__.a Net", "torch.jit._pickle build_intlist", "numpy dtype", "torch QInt8Storage"),
    *("torch._utils _rebuild_parameter_with_state", "numpy.core.multiarray scalar"),
)
NUMBERS = (*range(6), 16, 100, 255, 2**16, 2**31 - 1, -1, -(2**31))
WORDS = ("a", "b", "weight", "storage", "0", "1", "cpu", "", "é", "x.y", "_parameters", "latin1")
PLAIN = b"N\x88\x89)]}(.0122ate\x85\x86\x87lusbdoR\x81\x92\x8f\x90\x91\x93\x94Qh\0q\0q\1h\1K\2K\3"
SELDOM = 24  # one choice in so many is of what is wrong


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def integer(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def named(name: str) -> bytes:
    return b"c" + name.replace(" ", "\n").encode() + b"\n"


class PickleWriter:
    """A pickle in the making, and the storages that its tensors lie in."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.storages: list[tuple[str, int]] = []  # the kind, and the number of elements

    def is_wrong(self) -> bool:
        return self.choices.below(SELDOM) == SELDOM - 1

    def numbers(self, values: tuple[int, ...]) -> bytes:
        if self.is_wrong():
            values = tuple(self.choices.pick(NUMBERS) for _ in range(self.choices.below(4)))
        return b"(" + b"".join(map(integer, values)) + b"t"

    def chosen(self, n_needed: int) -> tuple[int, str, int]:
        """Choose a storage that is there already or a new one; its number, kind and length."""
        choices = self.choices
        if self.storages and choices.below(3) == 0:
            at = choices.below(len(self.storages))
        else:
            at = len(self.storages)
            self.storages.append((choices.pick(tuple(ITEMS)), n_needed + choices.below(3)))
        return at, *self.storages[at]

    def storage(self, n_needed: int) -> bytes:
        """Return a reference to a storage."""
        choices = self.choices
        at, kind, n = self.chosen(n_needed)
        n = choices.pick(NUMBERS) if self.is_wrong() else n
        name = choices.pick(GLOBALS) if self.is_wrong() else f"torch {kind}Storage"
        end = choices.pick((b"t", b"Nt")) if choices.below(8) == 0 else b"t"
        key = text(str(at)) + text("cpu") + integer(n)
        return b"(" + text("storage") + named(name) + key + end + b"Q"

    def tensor(self) -> bytes:
        choices = self.choices
        shape = tuple(choices.below(5) for _ in range(choices.below(4)))
        strides = tuple(prod(shape[i + 1 :]) for i in range(len(shape)))
        match choices.below(8):
            case 0:
                shape, strides = shape[::-1], strides[::-1]
            case 1:
                strides = tuple(0 for _ in shape)
            case 2:
                strides = tuple(2 * step for step in strides)
        first = choices.below(3)
        n = first + 1 + sum(max(0, d - 1) * step for d, step in zip(shape, strides, strict=True))
        made = self.rebuilt(n, first, shape, strides)
        if choices.below(6) == 0:
            made = named("torch._utils _rebuild_parameter") + b"(" + made + b"\x88}tR"
        return made

    def array(self) -> bytes:
        """Return an array of NumPy, its bytes behind it or in a buffer."""
        choices = self.choices
        shape = tuple(choices.below(4) for _ in range(choices.below(3)))
        kind = choices.pick(("f4", "f8", "i2", "u1", "b1", "O8", "U2", "V3", "c16", "x"))
        order = choices.pick("<<>|=")
        width = int(kind[1:] or 1)
        raw = choices.some(width * prod(shape) + self.is_wrong())
        dtype = named("numpy dtype") + b"(" + text(kind) + b"\x89\x88tR"
        dtype += b"(K\x03" + text(order) + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
        data = b"B" + struct.pack("<I", len(raw)) + raw
        data = b"]" + self.tensor() + b"a" if kind == "O8" else data
        if choices.below(3) == 0:
            args = data + dtype + self.numbers(shape) + text(choices.pick("CF"))
            return named("numpy._core.numeric _frombuffer") + b"(" + args + b"tR"
        made = named("numpy.core.multiarray _reconstruct") + b"(" + named("numpy ndarray")
        state = b"(K\x01" + self.numbers(shape) + dtype + choices.pick((b"\x88", b"\x89")) + data
        return made + b"(K\0tC\x01btR" + state + b"tb"

    def attributed(self) -> bytes:
        """Return a tensor with an attribute, a dictionary with one, or a call of a tensor."""
        state = b"}" + text(self.choices.pick(WORDS)) + self.tensor() + b"s"
        match self.choices.below(3):
            case 0:
                made = named("torch._utils _rebuild_parameter_with_state")
                return made + b"(" + self.tensor() + b"\x88}" + state + b"tR"
            case 1:
                return named("collections OrderedDict") + b")R" + state + b"b"
            case _:
                return named("argparse Namespace") + b"(" + self.tensor() + b"tR" + state + b"b"

    def rebuilt(
        self, n: int, first: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> bytes:
        """Return a tensor that lies in a storage of at least `n` elements."""
        made_by = "torch._utils _rebuild_tensor_v2"
        made_by = self.choices.pick(GLOBALS) if self.is_wrong() else made_by
        args = self.storage(n) + integer(first) + self.numbers(shape) + self.numbers(strides)
        return named(made_by) + b"(" + args + b"\x89}tR"

    def item(self) -> bytes:
        """Return a key and its value."""
        choices = self.choices
        key = text(choices.pick(WORDS) + str(choices.below(20)))
        match choices.below(10):
            case 6 | 7:
                return key + self.array() + b"s"
            case 8:
                return key + self.attributed() + b"s"
            case 9:
                return self.tensor() + self.tensor() + choices.pick((b"s", b"00"))
            case 0:
                return key + integer(choices.pick(NUMBERS)) + b"s"
            case 1:
                return key + text(choices.pick(WORDS)) + b"s"
            case 2:
                return key + b"}" + text(choices.pick(WORDS)) + self.tensor() + b"ss"
            case 3 if self.is_wrong():
                return key + named(choices.pick(GLOBALS)) + b")Rs"
            case _:
                return key + self.tensor() + b"s"

    def noise(self) -> bytes:
        choices = self.choices
        at = choices.below(len(PLAIN))
        options = (
            text(choices.pick(WORDS)),
            integer(choices.pick(NUMBERS)),
            named(choices.pick(GLOBALS)),
            choices.some(1 + choices.below(4)),
            PLAIN[at : at + 1 + choices.below(3)],
        )
        return choices.pick(options)

    def write(self) -> bytes:
        """Return a dictionary mostly."""
        pieces = [b"\x80\x02}" if self.choices.below(SELDOM) else b""]
        pieces += [
            self.noise() if self.is_wrong() else self.item() for _ in range(self.choices.below(12))
        ]
        return b"".join(pieces) + b"."


class UsualWriter(PickleWriter):
    """Writes what torch.save does, with a memo, but for a slip now and then."""

    def __init__(self, choices: Choices) -> None:
        super().__init__(choices)
        self.memo: dict[str, int] = {}
        self.n_memo = 0

    def put(self) -> bytes:
        n = self.n_memo
        self.n_memo += 1
        n = self.choices.below(256) if self.is_wrong() else n
        return b"q" + bytes([n]) if n < 256 else b"r" + struct.pack("<I", n)

    def once(self, key: str, written: bytes) -> bytes:
        """Return what is memoised the first time, and fetched from then on."""
        if key in self.memo:
            at = self.choices.below(256) if self.is_wrong() else self.memo[key]
            return b"h" + bytes([at & 255])
        self.memo[key] = self.n_memo
        return written + self.put()

    def number(self, value: int) -> bytes:
        value = self.choices.pick(NUMBERS) if self.is_wrong() else value
        if 0 <= value < 256:
            return b"K" + bytes([value])
        return b"M" + struct.pack("<H", value) if 0 <= value < 65536 else integer(value)

    def numbers(self, values: tuple[int, ...]) -> bytes:
        raw = b"".join(map(self.number, values))
        if not values:
            return b")"
        if len(values) <= 3 and not self.is_wrong():
            return raw + bytes([0x84 + len(values)]) + self.put()
        return b"(" + raw + b"t" + self.put()

    def storage(self, n_needed: int) -> bytes:
        at, kind, n = self.chosen(n_needed)
        n = self.choices.pick(NUMBERS) if self.is_wrong() else n
        name = self.choices.pick(GLOBALS) if self.is_wrong() else f"torch {kind}Storage"
        place = self.choices.pick(("cpu", "cuda:0", "", "é" if self.is_wrong() else "cpu"))
        parts = (
            self.once("storage", text("storage")),
            self.once(name, named(name)),
            text(str(at)) + self.put(),
            self.once(place, text(place)),
            self.number(n),
        )
        return b"(" + b"".join(parts) + b"t" + self.put() + b"Q"

    def rebuilt(
        self, n: int, first: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> bytes:
        made_by = "torch._utils _rebuild_tensor_v2"
        made_by = self.choices.pick(GLOBALS) if self.is_wrong() else made_by
        parts = (
            self.once(made_by, named(made_by)) + b"(",
            self.storage(n),
            self.number(first),
            self.numbers(shape),
            self.numbers(strides),
            self.choices.pick((b"\x89", b"\x88")),
            self.once("OrderedDict", named("collections OrderedDict")),
            b")R" + self.put(),
            b"t" + self.put() + b"R" + self.put(),
        )
        return b"".join(parts)

    def write(self) -> bytes:
        """Return a dictionary of tensors mostly, of any length."""
        choices = self.choices
        head = b"\x80\x02}" if choices.below(2) else b"\x80\x02" + self.ordered()
        items = []
        for i in range(choices.below(40) if choices.below(4) == 0 else choices.below(5)):
            key = text(f"{choices.pick(WORDS)}{i}") + self.put()
            noise = self.noise() if self.is_wrong() else b""
            items.append(key + noise + self.tensor())
        body = head + (self.put() if head.endswith(b"}") else b"") + b"(" + b"".join(items) + b"u"
        if choices.below(2):
            body += b"}" + self.put() + text("_metadata") + self.put() + self.ordered() + b"sb"
        raw = bytearray(body + b".")
        if self.is_wrong():
            raw[(choices.below(256) * 256 + choices.below(256)) % len(raw)] = choices.below(256)
        return bytes(raw)

    def ordered(self) -> bytes:
        return self.once("OrderedDict", named("collections OrderedDict")) + b")R" + self.put()


def writer_of(choices: Choices) -> PickleWriter:
    """Return a writer of either kind."""
    return UsualWriter(choices) if choices.below(2) else PickleWriter(choices)


def pickle_of(choices: Choices) -> bytes:
    """Return a pickle: half the time one of a torch file, else of anything."""
    writer = writer_of(choices)
    if isinstance(writer, UsualWriter) or choices.below(2):
        return writer.write()
    return b"\x80\x02}" + b"".join(writer.noise() for _ in range(choices.below(24))) + b"."


def torch_file(choices: Choices) -> bytes:
    """Return a torch file, zipped or older."""
    writer = writer_of(choices)
    make = legacy_file if choices.below(3) == 0 else archive
    pickled = writer.write()
    return make(writer, pickled)


def archive(writer: PickleWriter, pickled: bytes) -> bytes:
    choices = writer.choices
    folder = choices.pick(("archive/", "m/", "", "a/b/"))
    stream = io.BytesIO()
    method = choices.pick((zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(stream, "w", method) as file:
        file.writestr(f"{folder}data.pkl", pickled)
        if choices.below(8) == 0:
            file.writestr(f"{folder}constants.pkl", pickle_of(choices))
        if choices.below(2):
            wrong = writer.is_wrong()
            file.writestr(f"{folder}byteorder", choices.pick(("x" if wrong else "big", "little")))
        for key, data in storages(writer):
            file.writestr(f"{folder}data/{key}", data)
    raw = bytearray(stream.getvalue())
    if writer.is_wrong():
        raw[(choices.below(256) * 256 + choices.below(256)) % len(raw)] = choices.below(256)
    return bytes(raw)


def legacy_file(writer: PickleWriter, pickled: bytes) -> bytes:
    magic = 0x1950A86A20F9469CFC6C
    head = b"\x80\x02\x8a\x0a" + magic.to_bytes(10, "little") + b".\x80\x02M\xe9\x03.\x80\x02}."
    kept = storages(writer)
    keys = b"".join(text(key) for key, _ in kept)
    counts = [n for _, n in writer.storages]
    data = b"".join(struct.pack("<q", n) + data for n, (_, data) in zip(counts, kept, strict=False))
    return head + pickled + b"\x80\x02](" + keys + b"e." + data


def storages(writer: PickleWriter) -> list[tuple[str, bytes]]:
    """Return the storages that the pickle refers to, by their keys."""
    kept = []
    for at, (kind, n) in enumerate(writer.storages):
        n_bytes = n * ITEMS[kind] + (1 if writer.is_wrong() else 0)
        kept.append((str(at), writer.choices.some(n_bytes)))
    return kept[1:] if writer.is_wrong() else kept
