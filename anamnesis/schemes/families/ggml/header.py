"""What llama-quantize makes of a header: order of tensors, layers, keys.

Typed values are written as everywhere: `{"type": "uint32", "value": 7}`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from anamnesis.schemes.families.ggml import mixes

Typed = Mapping[str, Any]

_IMATRIX = "quantize.imatrix"
_MOST_BYTES = 127  # of a string that the tool writes of its own, or of its command line

_BLOCK = re.compile(r"blk\.\s*([+-]?[0-9]{1,9})")
_LAYER = re.compile(r"blk\.([0-9]{1,9})\.")
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")

# Layers of models that llama.cpp calls 70B.
_OF_70B = {"llama": 80, "qwen2": 80, "deci": 80, "olmo": 80, "jais2": 68}


# --- tensors --------------------------------------------------------------------------------------


def in_order(names: Iterable[str], arch: str = "") -> list[str]:
    """Return names as the tool writes their tensors: by layer, what is of none first."""
    if arch in mixes.KEPT_OF_IMAGES:  # the older tool that ComfyUI-GGUF patches leaves the order
        return list(names)

    def place(name: str) -> tuple[int, bytes]:
        found = _BLOCK.match(name)
        return (int(found[1]) if found else -1), name.encode("utf-8", "surrogateescape")

    return sorted(names, key=place)


def without_layers(names: Sequence[str], layers: Iterable[int]) -> tuple[dict[str, str], int]:
    """Return what remains of a model, under its new names, and the number of its layers."""
    left_out = set(layers)
    numbers: dict[int, int | None] = {}
    left: dict[str, str] = {}
    n = 0
    for name in names:
        found = _LAYER.search(name)
        if found is None:
            left[name] = name
            continue
        old = int(found[1])
        if old not in numbers:
            new = old if old < min(left_out) else n
            numbers[old] = None if old in left_out else new
            n = n if old in left_out else new + 1
        number = numbers[old]
        if number is not None:
            left[name] = f"{name[: found.start(1)]}{number}{name[found.end(1) :]}"
    return left, n


# --- what a header says ---------------------------------------------------------------------------


def model_facts(
    metadata: Mapping[str, Any], overrides: Mapping[str, Typed] | None = None
) -> mixes.ModelFacts:
    """Return what the rules ask of a model."""
    given = Told(metadata, overrides or {})
    arch = given.text("general.architecture")
    if arch == "clip" or arch in mixes.KEPT_OF_IMAGES:  # has no layers of a language model
        return mixes.ModelFacts(arch)
    n_heads = given.first(f"{arch}.attention.head_count", 0)
    n_kv_heads = given.first(f"{arch}.attention.head_count_kv", n_heads)
    n_experts = given.number(f"{arch}.expert_count")
    n_layers = given.number(f"{arch}.block_count")
    n_main = n_layers - given.number(f"{arch}.nextn_predict_layers")
    is_70b = _OF_70B.get(arch) == n_main
    if arch == "llama":
        is_70b = is_70b and n_heads != n_kv_heads and n_experts != 8
    if arch == "graniteswitch":  # llama.cpp counts its router's layer, and no others of its kind
        n_layers = n_main + 1
    return mixes.ModelFacts(arch, n_layers, n_heads, n_kv_heads, n_experts, is_70b)


class Told:
    """Metadata and what is to hold instead, where that is of the right type."""

    def __init__(self, metadata: Mapping[str, Any], overrides: Mapping[str, Typed]) -> None:
        self.metadata = metadata
        self.overrides = overrides

    def text(self, key: str) -> str:
        value = self._override(key, "string") or self.metadata.get(key)
        return value if isinstance(value, str) else ""

    def number(self, key: str) -> int:
        value = self._override(key, "uint32")
        if value is None:
            value = self.metadata.get(key)
        return value if isinstance(value, int) and value > 0 else 0

    def first(self, key: str, default: int) -> int:
        """Return a number, or the first of one for each layer; it must be there to be replaced."""
        value = self.metadata.get(key)
        if value is None:
            return default
        if not isinstance(value, list):
            return self.number(key)
        return value[0] if value and isinstance(value[0], int) else 0

    def _override(self, key: str, type: str) -> Any:
        typed = self.overrides.get(key, {})
        return typed["value"] if typed.get("type") == type else None


# --- `general.file_type`: the number by which a GGUF says what mix it is of -----------------------

GUESSED = 1024  # added to the number if a source does not say it
MOSTLY = {"NVFP4": 39, "MXFP4": 38}  # what the converter says of files that are mostly of a type
_UNASKED = {"NVFP4": 39}  # of types that llama-quantize makes no mix of


def mix_of(number: Any) -> str | None:
    """Return the name of the mix that has a number; None if none has it."""
    if type(number) is not int:
        return None
    return next((n for n, mix in mixes.MIXES.items() if mix.number == number & ~GUESSED), None)


def file_type(
    mix: str,
    metadata: Mapping[str, Any],
    overrides: Mapping[str, Typed] | None = None,
    dtypes: Iterable[str] = (),
) -> int:
    """Return what `general.file_type` says of a mix, or of a copy."""
    if mix != mixes.COPY:
        return mixes.MIXES[mix].number
    if mixes.FILE_TYPE in metadata or mixes.FILE_TYPE in (overrides or {}):
        return Told(metadata, overrides or {}).number(mixes.FILE_TYPE)
    counts: Counter[str] = Counter()
    most, common = 0, "F32"
    for dtype in dtypes:
        counts[dtype] += 1
        if counts[dtype] > most:
            most, common = counts[dtype], dtype
    name = common.lower()
    found = mixes.MIXES.get(mixes.ALIASES.get(name, name))
    return GUESSED | (found.number if found else _UNASKED.get(common, 0))


# --- what is written into one ---------------------------------------------------------------------


class ImatrixOf(NamedTuple):
    """What an output says of the importance matrix that it was made with."""

    file: str
    datasets: Sequence[str]
    n_entries: int
    n_chunks: int


class Edits(NamedTuple):
    """How a source's keys become an output's: some go, then some come, behind all others."""

    gone: dict[str, None]
    new: dict[str, Typed]


def header_edits(
    file_type: int,
    overrides: Iterable[tuple[str, Typed]] = (),
    imatrix: ImatrixOf | None = None,
    n_layers: tuple[str, int] | None = None,
    arch: str = "",
) -> Edits:
    """Return what the tool changes of the keys; of a model of images, they stay in their places."""
    new: dict[str, Typed] = {}

    def put(key: str, type: str, value: Any) -> None:
        new.pop(key, None)
        new[key] = {"type": type, "value": value}

    put("general.quantization_version", "uint32", 2)  # of ggml's block types
    put(mixes.FILE_TYPE, "uint32", file_type)
    for key, typed in overrides:
        put(key, typed["type"], typed["value"])
    if imatrix is not None and imatrix.n_entries:
        put(f"{_IMATRIX}.file", "string", _cut(imatrix.file))
        if imatrix.datasets:
            put(f"{_IMATRIX}.dataset", "string", _cut(imatrix.datasets[0]))
        put(f"{_IMATRIX}.entries_count", "uint32", imatrix.n_entries)
        if imatrix.n_chunks > 0:
            put(f"{_IMATRIX}.chunks_count", "uint32", imatrix.n_chunks)
    if n_layers is not None:
        put(f"{n_layers[0]}.block_count", "uint32", n_layers[1])
    return Edits({} if arch in mixes.KEPT_OF_IMAGES else dict.fromkeys(new), new)


def _cut(text: str) -> str:
    """Return as many bytes of a text as the tool writes, even where that cuts a letter."""
    raw = text.encode("utf-8", "surrogateescape")[:_MOST_BYTES]
    return raw.decode("utf-8", "surrogateescape")


def read_override(text: str) -> tuple[str, Typed]:
    """Read `KEY=TYPE:VALUE` as the tool's `--override-kv`: `int`, `float`, `bool` or `str`."""
    # An integer becomes a `uint32` without its sign.
    key, _, given = text.partition("=")
    kind, _, value = given.partition(":")
    size = len(value.encode("utf-8", "surrogateescape"))
    if not key or kind not in ("int", "float", "bool", "str") or len(key) > _MOST_BYTES:
        raise ValueError(f"write KEY=TYPE:VALUE with int, float, bool or str, not {text!r}")
    if kind == "int" and _INTEGER.fullmatch(value) and abs(int(value)) < 1 << 32:
        return key, {"type": "uint32", "value": abs(int(value))}
    if kind == "float" and _NUMBER.fullmatch(value):
        return key, {"type": "float32", "value": float(value)}
    if kind == "bool" and value in ("true", "false"):
        return key, {"type": "bool", "value": value == "true"}
    if kind == "str" and size <= _MOST_BYTES:
        return key, {"type": "string", "value": value}
    raise ValueError(f"{key}: {value!r} is no {kind} that llama-quantize writes")
