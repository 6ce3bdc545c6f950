"""`amn parse`: the stored tensors as they lie in the files, as text or JSON."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from anamnesis.base.plain_json import plain_json
from anamnesis.base.printable import numbered, printable, shortened
from anamnesis.base.sizes import format_size
from anamnesis.checkpoint.metadata import metadata_summary
from anamnesis.cli.verbs import verb
from anamnesis.formats.base import TypedMetadata

if TYPE_CHECKING:
    from anamnesis.cli.verbs import OpenModel
    from anamnesis.formats.gguf.metadata import GgufMetadata
    from anamnesis.model import Model
    from anamnesis.tensor import Tensor

_INDENT = "  "
_GAP = "  "
_MIN_NAME = 29
_LONGEST_NAME = 1000  # a longer name is shortened
_MAX_NAME = 100  # a longer name moves its own row only
_MIN_KIND = 18
_MAX_KIND = 40
_MAX_VALUE = 40
_MAX_TEXT = 100
_FIRST_ITEMS = 5


@verb(
    "parse",
    "amn parse model.safetensors",
    "amn parse model.gguf --metadata",
    "amn parse Qwen3-8B-FP8/ --schemes",
    "cat model.gguf | amn parse - --json",
)
def command(
    paths: tuple[str, ...], metadata: bool, schemes: bool, as_json: bool, open_model: OpenModel
) -> None:
    """List the tensors of a model as they are stored."""
    from anamnesis.cli.inputs import run_each

    width = _terminal_width()

    def work(path: str) -> dict[str, Any]:
        with open_model(path) as model:
            if as_json:
                return listing_dict(model, schemes=schemes)
            for line in listing(model, path, width, metadata=metadata, schemes=schemes):
                print(line)
        return {}

    run_each(paths, work, as_json=as_json)


def _terminal_width() -> int | None:
    """Return the columns of the terminal; None if stdout is none."""
    if not sys.stdout.isatty():
        return None
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except OSError:
        return None


def listing(
    model: Model,
    path: str,
    width: int | None = None,
    *,
    metadata: bool = False,
    schemes: bool = False,
) -> Iterator[str]:
    """Yield the lines of the listing."""
    yield f"Parsed {printable(path)} ({model.format})"
    for label, text in _head(model, metadata):
        yield f"{_INDENT}{label + ':':<11} {text}"
    if metadata:
        yield from _metadata_rows(model)
    if schemes:
        weights = list(model.weights.values())
        n = sum(weight.size for weight in weights)
        bits = f", {_bits(weights):.4g} bits each" if n else ""
        yield f"{_INDENT}{'Weights:':<11} {numbered(n, 'parameter')}{bits}"
        rows = [
            _Row(
                shortened(w.name, _LONGEST_NAME),
                f"{printable(w.scheme)} {list(w.shape)}",
                f"{w.size:,} x {_bits([w]):.4g} bits",
                _parts(w),
            )
            for w in weights
        ]
    else:
        rows = [
            _Row(shortened(t.name, _LONGEST_NAME), t.describe(), format_size(t.n_bytes))
            for t in model.stored.values()
        ]
    if rows:
        yield ""
    yield from _rows(rows, width)


class _Row(NamedTuple):
    """A row of the listing: name, dtype or scheme, size, and a line below."""

    name: str
    kind: str
    cost: str
    below: str = ""


def _parts(weight: Tensor) -> str:
    """Return the roles and dtypes of a weight's parts; empty if it has one."""
    if len(weight.parts) == 1:
        return ""
    parts = zip(weight.roles, weight.parts, strict=True)
    return ", ".join(f"{role} {part.describe()}" for role, part in parts)


def _bits(weights: list[Tensor]) -> float:
    """Return the bits for each parameter, scales included."""
    n = sum(weight.size for weight in weights)
    return 8 * sum(part.n_bytes for w in weights for part in w.parts) / n if n else 0.0


def _head(model: Model, metadata: bool) -> Iterator[tuple[str, str]]:
    tensors = model.stored.values()
    if len(model.files) > 1:
        yield "Files", f"{len(model.files):,}"
    yield "Tensors", f"{len(tensors):,}"
    yield "Total size", format_size(sum(t.n_bytes for t in tensors))
    dtypes = Counter(t.dtype.name for t in tensors).most_common()
    if len(dtypes) == 1:
        yield "Dtypes", dtypes[0][0]
    elif dtypes:
        yield "Dtypes", ", ".join(f"{name} ({n:,})" for name, n in dtypes)
    first = next(iter(model.files.values()))
    if not first.self_contained and "byte_order" in first.facts:
        yield "Byte order", f"{first.facts['byte_order']}-endian"
    if model.metadata:
        yield "Metadata", _metadata_line(model, metadata)


def _metadata_line(model: Model, listed: bool) -> str:
    summary = metadata_summary(model.files.values())
    n = numbered(len(summary), "key")
    if listed:
        return n
    if any(isinstance(c.metadata, TypedMetadata) for c in model.files.values()):
        return f"{n} (--metadata lists them)"
    entries = []
    for key, value in summary.items():
        long = f" ({len(value):,} characters)" if len(value) > _MAX_VALUE else ""
        entries.append(f"{printable(key[:_MAX_TEXT])}{long or f'={printable(value)}'}")
    return ", ".join(entries)


def _metadata_rows(model: Model) -> Iterator[str]:
    """Yield a line for each key: its type, if it has one, and its value."""
    from anamnesis.formats.gguf.metadata import GgufMetadata

    rows: dict[str, tuple[str, str]] = {}
    for container in model.files.values():
        found = container.metadata
        for key in found:
            if isinstance(found, GgufMetadata):
                rows[key] = (found.fields[key].describe(), _glance(found, key))
            else:
                rows[key] = ("", _shown(found[key]))
    key_width = min(_MAX_NAME, max((len(shortened(key)) for key in rows), default=0))
    kind_width = max((len(kind) for kind, _ in rows.values()), default=0)
    for key, (kind, value) in rows.items():
        kind = f"{kind:<{kind_width}}{_GAP}" if kind_width else ""
        yield f"{_INDENT}{_INDENT}{shortened(key):<{key_width}}{_GAP}{kind}{value}".rstrip()


def _glance(metadata: GgufMetadata, key: str) -> str:
    """Return a short form of a value: first items of an array, the start of a text."""
    field = metadata.fields[key]
    if field.span is None:
        return _shown(metadata.text(key))
    if field.type.name == "STRING":
        return f"({field.span.n_bytes:,} bytes)"
    first = metadata.first(key, _FIRST_ITEMS)
    items = [_shown(item, quote=True) for item in first]
    return f"[{', '.join(items if len(first) == field.span.n_items else [*items, '…'])}]"


def _shown(value: Any, *, quote: bool = False) -> str:
    if not isinstance(value, str):
        quote, value = False, str(value)
    text = repr(value[:_MAX_VALUE]) if quote else printable(value[:_MAX_TEXT])
    longest = _MAX_VALUE if quote else _MAX_TEXT
    return text if len(value) <= longest else f"{text}… ({len(value):,} characters)"


def _rows(rows: list[_Row], width: int | None) -> Iterator[str]:
    """Yield the rows in columns, as wide as the terminal allows."""
    kind_width = min(_MAX_KIND, max((len(row.kind) for row in rows), default=0))
    kind_width = max(_MIN_KIND, kind_width)
    size_width = max((len(row.cost) for row in rows), default=0)
    longest = max((len(row.name) for row in rows), default=0)
    name_width = min(_MAX_NAME, max(_MIN_NAME, longest))
    if width is not None:
        most = max((len(row.kind) for row in rows), default=0)
        room = width - 1 - len(_INDENT) - 2 * len(_GAP) - max(kind_width, most) - size_width
        if room < min(_MIN_NAME, longest):
            for name, kind, size, below in rows:  # a line for the name, and one for the rest
                yield f"{_INDENT}{name}"
                yield f"{_INDENT}{_INDENT}{kind}{_GAP}{size}"
                yield from _below(below, width)
            return
        name_width = max(_MIN_NAME, min(name_width, room))
    for name, kind, size, below in rows:
        facts = f"{kind:<{kind_width}}{_GAP}{size}"
        if width is not None and len(name) > name_width:
            yield f"{_INDENT}{name}"
            name = ""
        yield f"{_INDENT}{name:<{name_width}}{_GAP}{facts}"
        yield from _below(below, width)


def _below(text: str, width: int | None) -> Iterator[str]:
    """Yield the text below a row, wrapped to the terminal."""
    indent = _INDENT * 2
    if width is None:
        yield from [indent + text] if text else []
        return
    from textwrap import wrap

    yield from wrap(text, max(width - 1, 20), initial_indent=indent, subsequent_indent=indent)


def listing_dict(model: Model, *, schemes: bool = False) -> dict[str, Any]:
    """Return the listing as JSON, with where each tensor's bytes lie.

    NaN and infinities in metadata are the strings `NaN`, `Infinity` and `-Infinity`.

    A tensor has no offset if the file stores other bytes: deflated, column-major or swapped.
    With `schemes` the weights are listed, too.
    """
    shards = model.files
    files = {id(c.source.base): name for name, c in shards.items()}
    tensors = model.stored.values()
    weights = [
        {
            "name": weight.name,
            "scheme": weight.scheme,
            "shape": list(weight.shape),
            "n_parameters": weight.size,
            "n_bytes": sum(part.n_bytes for part in weight.parts),
            "bits_per_weight": _bits([weight]),
            "stored": [part.name for part in weight.parts],
            "roles": list(weight.roles),
        }
        for weight in (model.weights.values() if schemes else ())
    ]
    return {
        "format": model.format,
        "files": list(shards),
        "n_files": len(shards),
        "n_tensors": len(tensors),
        "n_bytes": sum(t.n_bytes for t in tensors),
        "dtypes": dict(Counter(t.dtype.name for t in tensors).most_common()),
        "metadata": plain_json(dict(model.metadata)),
        "tensors": [
            {
                "name": t.name,
                "dtype": t.dtype.name,
                "shape": list(t.shape),
                "offset": t.offset if t.source.shows_base else None,
                "n_bytes": t.n_bytes,
                "file": files[id(t.source.base)],
            }
            for t in tensors
        ],
        **({"weights": weights} if schemes else {}),
    }
