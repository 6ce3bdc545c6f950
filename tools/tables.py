"""The tables of README.md and docs/, and the sections of families, as the code has them.

    python tools/tables.py     puts them into both pages

A row belongs to an id of the code's own registries, and each id has a row. What is written and
moved, the parts of each layout, and which types and widths there are is taken from the code; what
an encoding looks like from the docstring of the module that reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any, NamedTuple

from anamnesis import _core
from anamnesis.architectures.registry import every_arch
from anamnesis.convert.loaders.table import ANY, CELLS, KINDS, PROGRAMS
from anamnesis.convert.loaders.verdicts import loaders
from anamnesis.convert.request import targets
from anamnesis.convert.request.options import OPTIONS
from anamnesis.formats.gguf.read import _BLOCK_NUMBERS
from anamnesis.formats.written import WRITERS
from anamnesis.schemes.core.layout import Field
from anamnesis.schemes.detect import unread
from anamnesis.schemes.detect.registry import FAMILIES
from anamnesis.schemes.encodings import ENCODINGS, GGUF, TAKING, made
from anamnesis.schemes.families.integers.layouts import awq, gptq
from anamnesis.schemes.ways import WAYS

__all__ = ["PAGES", "renewed", "tables"]

PROJECT = Path(__file__).parents[1]
PAGES = (
    PROJECT / "README.md",
    PROJECT / "docs" / "command-line.md",
    PROJECT / "docs" / "formats.md",
    PROJECT / "docs" / "gguf-models.md",
    PROJECT / "docs" / "loading.md",
    PROJECT / "docs" / "repacking.md",
)
SCHEMES = PROJECT / "anamnesis" / "schemes" / "families"
TARGETS = ENCODINGS | TAKING | GGUF
ENCODED = {*ENCODINGS, *(name for name in GGUF if targets.target(name).mix is not None)}
UNREAD = ("QuIP#", "SpQR", "SVDQuant")  # the best known of those that are refused
OWN_FILE = re.compile(r"`[\w/]+\.py`|`layouts/`")
TABLE = re.compile(r"<!-- table: (\w+) -->\n.*?<!-- /table -->", re.S)


class Format(NamedTuple):
    """A row of the formats: which it is of, where it is written, and what is said of it."""

    ids: tuple[str, ...]
    folder: str
    name: str
    more: str = ""


class Family(NamedTuple):
    """A section of the encodings, and a row of the matrix.

    `scheme` is the folder that reads it, empty for what none does; `shown` are the modules whose
    docstrings say what it looks like, and `written` the names of targets that write it, as shell
    patterns. `rounded` is what the library rounds in between, and to which dtype, where
    `math="reference"` differs.
    """

    title: str
    scheme: str
    whose: str
    read: str
    shown: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    refused: str = ""
    rounded: str = ""


def formats() -> Iterable[Format]:
    """Yield the rows of the formats."""
    yield Format(
        ("safetensors",),
        "safetensors",
        "safetensors: one file, or a directory of shards as on the Hugging Face hub",
    )
    yield Format(
        ("gguf",),
        "gguf",
        "GGUF: versions 1 to 3, either byte order, models split into several files, every tensor "
        "type that ggml has",
    )
    yield Format((), "", "`ollama:NAME[:TAG]`: a model in Ollama's local store")
    yield Format(
        ("npz", "npy"),
        "numpy",
        "NPZ and NPY: stored and deflated members, any byte order and memory order, BF16 and FP8 "
        "E5M2 as ml_dtypes saves them, other ml_dtypes types with `--void-dtype`",
    )
    yield Format(
        ("torch",),
        "torch",
        "PyTorch `.pth`, `.pt`, `.bin`: ZIP archives, files from before PyTorch 1.6, the tensors "
        "of TorchScript files, Hugging Face shards",
        "; nothing in them is executed",
    )


def families() -> Iterable[Family]:
    """Yield the families, in the order of their sections."""
    yield Family(
        "FP8",
        "fp8",
        "DeepSeek, Qwen, EXAONE, Mistral and others; compressed-tensors, ModelOpt, ComfyUI, kohya, "
        "quanto, torchao",
        "In blocks of any size, partial ones at the edges too, per channel, per tensor, and without"
        " scales. `scale_weight` counts beside the `scaled_fp8` marker.",
        ("fp8.read", "fp8.weight"),
        ("fp8-*", "comfy-fp8"),
        rounded="ModelOpt: the scale, to the output's; ComfyUI: so too, not by rows or blocks",
    )
    yield Family(
        "MXFP8",
        "fp8",
        "compressed-tensors, ModelOpt, MLX, ComfyUI, torchao",
        "8-bit floats with a power of two for 32 values of a row.",
        written=("mxfp8*", "mlx-mxfp8", "comfy-mxfp8"),
    )
    yield Family(
        "NVFP4 and MXFP4",
        "fp4",
        "compressed-tensors, ModelOpt, gpt-oss, DeepSeek, MLX, ComfyUI, torchao, Quark, AutoRound; "
        "those of GGUF are blocks",
        "All of it, stacks of experts too. In GGUF, a `NAME.scale` beside another type of block is "
        "a tensor like any other.",
        ("fp4",),
        ("nvfp4*", "mxfp4*", "mlx-nvfp4", "mlx-mxfp4", "gptoss-*", "comfy-nvfp4", "gguf-*fp4"),
        rounded="ComfyUI's NVFP4: the scales, to the output's",
    )
    yield Family(
        "MXFP6",
        "fp6",
        "compressed-tensors (E2M3), Quark (E2M3 and E3M2)",
        "All of it.",
        ("fp6.weight",),
    )
    yield Family(
        "INT8 and INT4",
        "integers",
        "compressed-tensors, ModelOpt, Quark, ComfyUI, quanto (qint8)",
        "In rows and in words of 1 to 8 bits; in groups, per channel and per tensor; act-order or "
        "not. ComfyUI's AWQ and SVDQuant are read, and not written, for their codes come of a "
        "calibration.",
        (
            "integers",
            *("integers.layouts.comfy", "integers.layouts.svdquant"),
            *("integers.layouts.compressed_tensors", "integers.layouts.one_byte"),
            *("integers.layouts.modelopt", "integers.layouts.quark"),
        ),
        ("int8*", "int4*", "comfy-int8", "comfy-int8-tensor"),
        "ModelOpt's `pre_quant_scale` stops a conversion, for no ordinary model scales its inputs: "
        "`--fold-pre-quant-scale` multiplies the weight by it, as a plain model needs it, and "
        "`--allow-unknown` passes it beside the weight.",
        "ModelOpt: the scale, to the output's; ComfyUI's AWQ: product and sum, to the scales'",
    )
    yield Family(
        "ConvRot",
        "rotated",
        "ComfyUI",
        "INT8 and INT4 (W4A4) of rows whose columns are rotated, and W4A8 and W6A8, whose codes "
        "are moved to INT8, too. W4A8 has comfy-kitchen's fixed levels; a weight with heavy tails "
        "gets levels of its own, as comfy-kitchen's encoder gives it.",
        ("rotated",),
        ("comfy-int8-convrot", "comfy-convrot-w?a?"),
        rounded="W4A8 and W6A8: what is rotated, to the output's",
    )
    yield Family(
        "torchao",
        "torchao",
        "torchao, in safetensors and in PyTorch's pickles",
        "Float8Tensor, Int4Tensor, Int8Tensor, IntxUnpackedToInt8Tensor, MXTensor and NVFP4Tensor; "
        "in pickles AffineQuantizedTensor of before torchao 0.14, with a code to a byte.",
        ("torchao.int_tensors",),
        refused="Others that torchao no longer has, and codes packed for one kind of processor.",
        rounded="Int4Tensor: what code 0 stands for, and float zero points: the difference; to the "
        "scales'",
    )
    yield Family(
        "MLX's integers",
        "integers",
        "mlx-lm",
        "Of 1 to 8 bits, in safetensors and NPZ.",
        ("integers.layouts.mlx",),
        ("mlx-*bit",),
        rounded="product and sum, to the scales'",
    )
    yield Family(
        "GPTQ",
        "integers",
        "AutoGPTQ, GPTQModel, AutoRound",
        f"In {_listed(gptq.PACKINGS)} bits, act-order or not, as `gptq` and `gptq_v2`; in "
        f"{_listed(gptq.PLANAR)} bits as `gptq_p`; AutoRound's packings of it.",
        ("integers.layouts.gptq",),
        ("gptq-*",),
        "Embeddings.",
    )
    yield Family(
        "AWQ",
        "integers",
        "AutoAWQ",
        f"In {awq.PACKING.bits} bits, as GEMM, GEMV and GEMV-fast lay it out.",
        ("integers.layouts.awq", "integers.layouts.awq_gemv"),
        ("awq-*",),
        "Scaled activations.",
    )
    yield Family(
        "Marlin",
        "integers",
        "AutoGPTQ, AutoAWQ, compressed-tensors, states of vLLM and SGLang",
        "In 4 and 8 bits; the 2:4 sparse kind, too.",
        ("integers.layouts.marlin", "integers.layouts.marlin_24"),
        refused="Zero points.",
    )
    yield Family(
        "HQQ, quanto, BitNet and Gemma",
        "integers",
        "HQQ, also its own `qmodel.pt`; quanto (qint4, qint2); BitNet and Gemma of transformers",
        "HQQ in 1 to 8 bits; of quanto's weights the config has the bits, and of Gemma's.",
        (
            *("integers.layouts.hqq", "integers.layouts.quanto"),
            *("integers.layouts.bitnet", "integers.layouts.gemma"),
        ),
        rounded="HQQ: difference and product, quanto: product and sum; to the scales'; Gemma: the "
        "scale, to the output's",
    )
    yield Family(
        "bitsandbytes",
        "bnb",
        "bitsandbytes, by way of transformers",
        "NF4 and FP4, plain and double-quantised; INT8 (`LLM.int8()`).",
        ("bnb",),
        ("bnb-*",),
        "INT8 in layouts that bitsandbytes has dropped.",
    )
    yield Family(
        "GGUF's block types",
        "ggml",
        "llama.cpp and Ollama",
        f"{_listed(row.name for row in _core.block_types())}.",
        ("ggml.read",),
        ("gguf-q*", "gguf-tq*", "gguf-iq*"),
        f"In big-endian files all but {_listed(_BLOCK_NUMBERS)}.",
    )
    yield Family(
        "EXL2",
        "exl2",
        "exllamav2",
        "In 2, 3, 4, 5, 6 and 8 bits, mixed within a weight; the output head without its padding; "
        "an index that was copied with the source's other files is not asked. It is compared with "
        "exllamav2's own kernels, which are compiled for a CPU under emulated half floats: no GPU "
        "has been asked.",
        ("exl2.weight",),
        rounded="the scale, and the product, to F16",
    )
    yield Family(
        "AQLM and VPTQ",
        "codebooks",
        "AQLM and VPTQ",
        "AQLM; VPTQ with and without a correction.",
        ("codebooks.aqlm", "codebooks.vptq"),
        refused="Outliers of VPTQ.",
        rounded="AQLM: the sum of all entries, and the product, VPTQ: each sum and product; to the "
        "codebooks'",
    )
    yield Family(
        "EXL3",
        "exl3",
        "exllamav3, and GPTQModel",
        "1 to 8 bits, all three codebooks, each layer by itself; the sign bits of older files; the "
        "output head without its padding, other layers with theirs. It is compared with "
        "exllamav3's own kernels, which are compiled for a CPU under an emulated CUDA: no GPU has "
        "been asked.",
        ("exl3",),
        refused="Multipliers of codebooks other than those that exllamav3 has had since 0.0.9; "
        "halves of bits (2.5, 3.5), which later versions write; `scale`, which the first wrote.",
    )
    yield Family(
        "Sparse bitmasks",
        "mixed",
        "compressed-tensors",
        "`sparse-24-bitmask` and `sparse-bitmask`, of any dtype, FP8 and INT8 with scales too.",
        ("mixed.read",),
    )


def tables() -> dict[str, str]:
    """Return the tables in Markdown.

    Raises
    ------
    ValueError
        If a registry and the rows differ in their ids, or a layout is in no section.
    """
    rows, kinds = list(formats()), list(families())
    _same("formats", set(WRITERS), {id_ for row in rows for id_ in row.ids})
    _same("families", set(FAMILIES), {row.scheme for row in kinds})
    _same("targets", TARGETS.keys(), {name for row in kinds for name in _targets(row)})
    return {
        "formats": _table("format", "state", rows=[(row.name, _state(row)) for row in rows]),
        "containers": _table("", *map(_short, rows), rows=_containers(rows)),
        "matrix": _table("family", "read", "write", "repack", rows=_matrix(kinds)),
        "families": "\n\n".join(_sections(kinds)),
        "architectures": _table(
            "classes of transformers", "llama.cpp's name", rows=_architectures()
        ),
        "ways": _ways(),
        "unread": _table("it is called", "by its parts", "and the config", rows=_unread()),
        "methods": _table("`quant_method`", "here", "what it is", "of", rows=_known("methods")),
        "method_formats": _table("name", "here", "what it is", "of", rows=_known("formats")),
        "roundings": _table(
            "encoding",
            "its library rounds in between",
            rows=[(row.title, row.rounded) for row in kinds if row.rounded],
        ),
        "loading": _table("encoding", "loads in", rows=_loading()),
        "options": _table("command line", "in a recipe", "in Python", rows=_options()),
        "exceptions": _table(
            "program", "encodings", "of what", "", "why; what works", "known by", rows=_exceptions()
        ),
    }


# --- what the matrix and the sections of the families are made of --------------------------------


class Shown(NamedTuple):
    """A layout as a section shows it, with the names of the targets that are in it.

    `bare` are its parts of weights whose names do not end in `.weight`, if they are others.
    """

    words: str
    fields: tuple[Field, ...]
    targets: list[str]
    module: str
    bare: tuple[Field, ...] = ()


def _matrix(kinds: Iterable[Family]) -> Iterable[tuple[str, ...]]:
    """Yield the rows of README's matrix."""
    for row in kinds:
        names = _targets(row)
        said = (True, any(name in ENCODED for name in names), any(map(_takes, names)))
        link = f"[{row.title}](docs/formats.md#{_anchor(row.title)})"
        yield (link, *["✓" if one else "" for one in said])
    unread = f"[{', '.join(UNREAD)} and others](docs/formats.md#known-but-not-read)"
    yield (unread, "refused, by name", "", "")


def _sections(kinds: Iterable[Family]) -> Iterable[str]:
    """Yield the section of each family: a heading, and four below it."""
    layouts = list(_layouts())
    for row in kinds:
        own = [one for one in layouts if _is_of(one, row)]
        layouts = [one for one in layouts if one not in own]
        pictures = [_picture(_docstring(name)) for name in row.shown]
        yield "\n\n".join(
            [
                f"### {row.title}",
                f"Of {row.whose}.",
                "#### What it looks like",
                *filter(None, [*pictures, _parts(own)]),
                *("#### Read", row.read),
                *("#### Written as", _written(_targets(row))),
                *("#### Refused", row.refused or "What is known of it is read."),
            ]
        )
    if layouts:
        raise ValueError(f"layouts are in no section: {[one.words for one in layouts]}")


def _is_of(layout: Shown, row: Family) -> bool:
    """Return whether a layout belongs to a family: by its targets, else by its module."""
    if layout.targets:
        return set(layout.targets) <= set(_targets(row))
    names = (*row.shown, f"{row.scheme}.layouts", f"{row.scheme}.read")
    own = [f"anamnesis.schemes.families.{name}" for name in names]
    return layout.module in own


def _layouts() -> Iterable[Shown]:
    """Yield the layouts of all targets, then what modules of layouts have beside these."""
    written: dict[tuple[type, tuple[Field, ...]], Shown] = {}
    for name, row in TARGETS.items():
        layout = made(row).layout
        kind = type(layout)
        bare = getattr(layout, "bare", ())
        one = Shown(_first_line(kind.__doc__), layout.fields, [], kind.__module__, bare)
        written.setdefault((kind, layout.fields), one).targets.append(name)
    yield from written.values()
    seen = {fields for _, fields in written}
    for module in _layout_modules():
        for name, value in _values(vars(module)):
            kind = value if isinstance(value, type) else type(value)
            is_own = kind.__module__ == module.__name__ and not kind.__name__.startswith("_")
            own = getattr(value, "fields", ()) if is_own else ()
            fields: tuple[Any, ...] = value if _are_fields(value) else own
            if _are_fields(fields) and fields[0].role == "codes" and fields not in seen:
                seen.add(fields)
                words = _whose(value) or _first_line(kind.__doc__)
                if fields is value:  # nothing but fields, for they are read alone
                    is_all = name in ("FIELDS", "LAYOUTS")
                    words = _first_line(module.__doc__) if is_all else name.lower()
                yield Shown(words, fields, [], module.__name__)


def _whose(layout: object) -> str:
    """Return whose a layout is, where that is not said by its class."""
    meaning = getattr(layout, "meaning", None)
    return getattr(layout, "producer", "") or getattr(meaning, "words", "")


def _layout_modules() -> Iterable[ModuleType]:
    """Import and yield the modules of layouts, and those in folders of them."""
    for path in sorted([*SCHEMES.glob("*/layouts*"), *SCHEMES.glob("*/read.py")]):
        files = sorted(path.glob("*.py")) if path.is_dir() else [path]
        for file in files:
            name = file.relative_to(SCHEMES.parents[2]).with_suffix("")
            yield import_module(".".join(name.parts).removesuffix(".__init__"))


def _values(found: Mapping[str, object]) -> Iterable[tuple[str, Any]]:
    """Yield the values of a module, and those of its tables, by the names there."""
    for name, value in found.items():
        several: Iterable[object] = (value,)
        if isinstance(value, dict):
            several = value.values()
        elif isinstance(value, tuple) and not _are_fields(value) and not hasattr(value, "_fields"):
            several = value
        yield from ((name, one) for one in several)


def _are_fields(value: object) -> bool:
    return isinstance(value, tuple) and bool(value) and all(isinstance(f, Field) for f in value)


def _parts(layouts: Iterable[Shown]) -> str:
    """Return the table of the parts of layouts; empty if there are none."""
    rows = [
        (
            one.words,
            ", ".join(map(_part, one.fields))
            + (f"; without `.weight` {', '.join(map(_part, one.bare))}" if one.bare else ""),
            ", ".join(f"`{name}`" for name in one.targets),
        )
        for one in layouts
    ]
    return _table("layout", "parts", "targets", rows=rows) if rows else ""


def _part(field: Field) -> str:
    name = field.name.replace("{weight}", "WEIGHT").replace("{module}", "")
    words = f"{field.role} `{name}`"
    words += f" ({' or '.join(field.dtypes)})" if field.dtypes else ""
    return f"{words} unless {field.unless}" if field.unless else words


def _picture(doc: str) -> str:
    """Return a docstring in Markdown: what is indented is a drawing.

    Paragraphs that speak of files are for those who read the code.
    """
    parts: list[str] = []
    for text in doc.split("\n\n"):
        if not text.startswith("    "):
            parts += [] if OWN_FILE.search(text) else [text]
        elif parts and parts[-1].endswith("\n```"):
            parts[-1] = f"{parts[-1].removesuffix('```')}\n{dedent(text)}\n```"
        else:
            parts.append(f"```text\n{dedent(text)}\n```")
    return "\n\n".join(parts)


def _written(names: list[str]) -> str:
    """Return which targets write a family, and which of them take codes that are there."""
    if not names:
        return "It is not written."
    encoded = [f"`{name}`" for name in names if name in ENCODED]
    moved = [f"`{name}`" for name in names if _takes(name)]
    words = [f"{', '.join(encoded)}."] if encoded else []
    if moved == encoded:
        words.append("All take the [same codes](repacking.md) from other layouts, too.")
    elif moved:
        words.append(f"[Repacked](repacking.md) from the same codes: {', '.join(moved)}.")
    return " ".join(words)


def _takes(name: str) -> bool:
    """Return whether a target takes codes that are there already."""
    return made(TARGETS[name]).layout.takes is not None


def _unread() -> Iterable[tuple[str, str, str]]:
    """Yield what is known and not read, and how it shows."""
    names = {row.encoding for row in unread._table().rows}
    if missing := set(UNREAD) - names:
        raise ValueError(f"not in the table of what is not read: {sorted(missing)}")
    for row in unread._table().rows:
        parts = [part.partition(":") for part in row.parts.split()]
        listed = ", ".join(
            f"`{name}`" + f" ({' or '.join(dtypes.split(','))})" * bool(dtypes)
            for name, _, dtypes in parts
        )
        called = f"{row.encoding} ({row.producer})" if row.producer else row.encoding
        yield called, listed, f"`{row.method}`" if row.method else ""


_STATES = {"runtime": "a way to run a model", "refused": "refused by name"}


def _known(which: str) -> Iterable[tuple[str, ...]]:
    """Yield the methods, or the formats, that programs know."""
    for row in getattr(unread._table(), which):
        yield f"`{row.name}`", _STATES.get(row.state, row.state), row.words, row.programs


def _docstring(name: str) -> str:
    return (import_module(f"anamnesis.schemes.families.{name}").__doc__ or "").strip()


def _first_line(doc: str | None) -> str:
    return (doc or "").partition("\n")[0].removesuffix(".")


def _anchor(title: str) -> str:
    """Return what a heading is linked by, on GitHub as in the site."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _containers(rows: list[Format]) -> Iterable[tuple[str, ...]]:
    """Yield what is read and what is written, with a column for each container."""
    yield ("read", *["✓"] * len(rows))
    yield ("write", *["✓" if _is_written(row) else "" for row in rows])


def _short(row: Format) -> str:
    return row.name.partition(": ")[0]


# --- the other tables ----------------------------------------------------------------------------


def _loading() -> list[tuple[str, str]]:
    """Return what loads each encoding; those that the same programs load in one row."""
    together: dict[str, list[str]] = {}
    for name in ("safetensors", "gguf", "npz", "npy", "torch", *ENCODINGS, *TAKING):
        together.setdefault(loaders(name), []).append(f"`{name}`")
    return [(", ".join(names), programs) for programs, names in together.items()]


def _options() -> list[tuple[str, ...]]:
    """Return what options of a conversion are called in each place."""
    rows = {row.name: row for row in OPTIONS if row.call in ("remember", "convert", "mix")}
    rows |= {row.name: row for row in OPTIONS if row.name == "drop"}
    keys = {row.name: f"`{row.key}`" for row in rows.values() if row.recipe}
    return [(f"`{row.flag}`", keys.get(name, ""), f"`{name}`") for name, row in rows.items()]


def _architectures() -> list[tuple[str, str]]:
    """Return which classes become a GGUF, and what llama.cpp calls it."""
    return [(", ".join(f"`{name}`" for name in row.hf), f"`{row.gguf}`") for row in every_arch()]


def _exceptions() -> list[tuple[str, ...]]:
    """Return the rows of the table of loaders that are not plain "loads"."""
    words = {"unwritten": "not written", "wrong": "**wrong, without an error**"}
    return [
        (
            f"{PROGRAMS[row.program].title} {PROGRAMS[row.program].version}".rstrip(),
            ", ".join(f"`{name}`" for name in row.encodings),
            "" if row.kind == ANY else KINDS[row.kind],
            words.get(row.outcome, row.outcome),
            "; ".join(filter(None, (row.why, row.instead))),
            row.proof.rpartition("::")[2],
        )
        for row in CELLS
        if row.outcome != "loads"
    ]


def _ways() -> str:
    """Return what codes are moved and cast into, and why some of them are not."""
    alike: dict[tuple[str, str], list[str]] = {}
    reasons: dict[str, int] = {}
    for target, sources in WAYS.items():
        shown = {"moved": [], "cast": []}  # type: dict[str, list[str]]
        for source, (how, why) in sources.items():
            note = f" ({reasons.setdefault(why, len(reasons) + 1)})" if why else ""
            shown[how].append(f"`{source}`{note}")
        alike.setdefault((", ".join(shown["moved"]), ", ".join(shown["cast"])), []).append(target)
    rows = [(", ".join(f"`{t}`" for t in names), *ways) for ways, names in alike.items()]
    notes = [f"{n}. Not all: {why}." for why, n in reasons.items()]
    return "\n".join([_table("into", "moved from", "cast from", rows=rows), "", *notes])


def _is_written(row: Format) -> bool:
    return bool(row.folder) and find_spec(f"anamnesis.formats.{row.folder}.write") is not None


def _state(row: Format) -> str:
    return ("read and written" if _is_written(row) else "read") + row.more


def _targets(row: Family) -> list[str]:
    """Return the targets that write a family."""
    return [name for name in TARGETS if any(fnmatchcase(name, p) for p in row.written)]


def _same(what: str, ids: Set[str], shown: set[str]) -> None:
    if ids != shown:
        raise ValueError(f"{what}: the rows and the registry differ in {sorted(ids ^ shown)}")


def _listed(items: Iterable[object]) -> str:
    *first, last = map(str, items)
    return f"{', '.join(first)} and {last}" if first else last


def _table(*head: str, rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(re.sub(r"\|  (?=\|)", "| ", f"| {' | '.join(line)} |") for line in lines)


def renewed(text: str) -> str:
    """Return a page with its tables as they are now.

    Raises
    ------
    ValueError
        If it has one twice, or none.
    """
    made, found = tables(), TABLE.findall(text)
    if not found or len(set(found)) < len(found):
        raise ValueError("a page has a table once")
    return TABLE.sub(lambda one: f"<!-- table: {one[1]} -->\n{made[one[1]]}\n<!-- /table -->", text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(renewed(page.read_text(encoding="utf-8")), encoding="utf-8")
