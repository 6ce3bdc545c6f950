"""The tables of formats and encodings in README.md and docs/formats.md, as the code has them.

    python tools/tables.py     puts them into both pages

A row belongs to an id of the code's own registries, and each id has a row. What is written, which
types and widths there are, and which are refused is taken from the code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from anamnesis import _core
from anamnesis.convert.loaders.table import ANY, CELLS, KINDS, PROGRAMS
from anamnesis.convert.loaders.verdicts import loaders
from anamnesis.formats.gguf.read import _BLOCK_NUMBERS
from anamnesis.formats.writers import WRITERS
from anamnesis.schemes.claim.registry import FAMILIES
from anamnesis.schemes.encodings import ENCODINGS, LAYOUTS
from anamnesis.schemes.integers.layouts import awq, gptq

__all__ = ["PAGES", "renewed", "tables"]

PROJECT = Path(__file__).parents[1]
PAGES = (
    PROJECT / "README.md",
    PROJECT / "docs" / "formats.md",
    PROJECT / "docs" / "loading.md",
)
TABLE = re.compile(r"<!-- table: (\w+) -->\n.*?<!-- /table -->", re.S)


class Format(NamedTuple):
    """A row of the formats: which it is of, where it is written, and what is said of it."""

    ids: tuple[str, ...]
    folder: str
    name: str
    more: str = ""


class Encoding(NamedTuple):
    """A row of the encodings; `scheme` is empty for what no scheme reads.

    `written` are the names of targets that write it, as shell patterns; `rounded` is what the
    library rounds in between, and to which dtype, where `math="reference"` differs.
    """

    scheme: str
    name: str
    told_by: str
    state: str
    written: tuple[str, ...] = ()
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


def encodings() -> Iterable[Encoding]:
    """Yield the rows of the encodings."""
    yield Encoding(
        "fp8",
        "FP8 in blocks (DeepSeek, Qwen, EXAONE, …), any block size, partial blocks at the edges",
        "`weight_scale_inv` or `weight_scale`, a grid",
        "read",
        ("fp8-block*",),
        "ModelOpt: the scale, to the output's",
    )
    yield Encoding(
        "fp8",
        "FP8 per channel, FP8 per tensor (compressed-tensors, ModelOpt, Mistral, …)",
        "`weight_scale`, `qscale_weight`, …",
        "read",
        ("fp8-channel*", "fp8-tensor*"),
        "ModelOpt: the scale, to the output's",
    )
    yield Encoding(
        "fp8",
        "MXFP8: one power of two for 32 values",
        "E8M0 or U8 scales",
        "read",
        ("mxfp8*", "mlx-mxfp8"),
    )
    yield Encoding(
        "fp8",
        "scaled FP8 of ComfyUI and kohya",
        "`scale_weight` and the `scaled_fp8` marker, or `comfy_quant`",
        "read",
        rounded="the scale, to the output's; not by rows or blocks",
    )
    yield Encoding(
        "fp4",
        "NVFP4 and MXFP4 of compressed-tensors, ModelOpt, gpt-oss, DeepSeek, MLX, ComfyUI, torchao "
        "and Quark",
        "two codes to a byte, with scales in E4M3 or E8M0",
        "read",
        ("nvfp4*", "mxfp4*", "mlx-nvfp4", "mlx-mxfp4", "gptoss-mxfp4"),
        rounded="ComfyUI's NVFP4: the scales, to the output's",
    )
    yield Encoding(
        "integers",
        "integers of compressed-tensors: `int-quantized`, and `pack-quantized` of 1 to 8 bits, in "
        "groups or per channel, act-order or not",
        "`weight_packed`, `weight_shape`, `weight_scale`",
        "read",
        ("int8", "int4*"),
    )
    yield Encoding(
        "integers",
        "INT8 of ModelOpt, Quark, ComfyUI and quanto",
        "`weight_scale`, `comfy_quant`, … and the config",
        "read; ModelOpt's `pre_quant_scale` stops a conversion, for no ordinary model scales its "
        "inputs, and passes beside the weight with `--allow-unknown`",
        rounded="ModelOpt: the scale, to the output's",
    )
    yield Encoding(
        "integers",
        "MLX's affine integers of 1 to 8 bits",
        "`scales`, `biases`",
        "read",
        ("mlx-*bit",),
        rounded="product and sum, to the scales'",
    )
    yield Encoding(
        "integers",
        "INT4 of ModelOpt; HQQ in 1 to 8 bits; qint4 and qint2 of quanto; BitNet",
        "`weight_scale`, `W_q`, `_data._data` and their shapes; the config has those of quanto's "
        "weights",
        "read",
        rounded="HQQ: difference and product, quanto: product and sum; to the scales'",
    )
    yield Encoding(
        "integers",
        "torchao's Float8Tensor, Int4Tensor, Int8Tensor, IntxUnpackedToInt8Tensor, MXTensor and "
        "NVFP4Tensor, in safetensors and in PyTorch's pickles",
        "`_weight_qdata`, `_weight_scale`, …; the class, which the file says",
        "read; AffineQuantizedTensor and others that torchao no longer has, and codes packed for "
        "one kind of processor, are refused",
        rounded="Int4Tensor: what code 0 stands for, float zero points: the difference; to the "
        "scales'",
    )
    yield Encoding(
        "fp6",
        "MXFP6 of compressed-tensors (E2M3) and Quark (E2M3 and E3M2)",
        "four codes in three bytes, a scale in E8M0 for 32 columns",
        "read",
    )
    yield Encoding(
        "integers",
        "INT4 of Quark in groups, per channel and per tensor, INT8 in groups",
        "`weight_scale`, `weight_zero_point`, and the config",
        "read",
    )
    yield Encoding(
        "mixed",
        "compressed-tensors' `sparse-24-bitmask` and `sparse-bitmask`, of any dtype, FP8 and INT8 "
        "with scales too",
        "`compressed`, `bitmask`, `shape`, `row_offsets`",
        "read",
    )
    yield Encoding("fp8", "FP8 without scales", "no scale in the file or the config", "read")
    yield Encoding(
        "ggml",
        f"GGUF block types: {_listed(row.name for row in _core.block_types())}",
        "the type of the tensor",
        f"read; in big-endian files only {', '.join(_BLOCK_NUMBERS)}",
        # Targets that are called nvfp4 and mxfp4 are compressed-tensors'.
        tuple(
            row.name.lower() for row in _core.block_types() if row.name not in ("NVFP4", "MXFP4")
        ),
    )
    yield Encoding(
        "bnb",
        "BitsAndBytes NF4 and FP4, plain and double-quantised",
        "`quant_state.bitsandbytes__nf4` or `…fp4`",
        "read",
        ("bnb-nf4*", "bnb-fp4*"),
    )
    yield Encoding(
        "bnb",
        "BitsAndBytes INT8 (`LLM.int8()`)",
        "`SCB`",
        "read, except layouts that bitsandbytes has dropped",
        ("bnb-int8",),
    )
    parts = "`qweight`, `qzeros`, `scales`"
    yield Encoding(
        "integers",
        f"GPTQ in {_listed(gptq.PACKINGS)} bits, act-order or not, `gptq` and `gptq_v2`; in "
        f"{_listed(gptq.PLANAR)} bits `gptq_p`; AutoRound's packings of it",
        f"{parts}, `g_idx` and their shapes",
        "read; embeddings are refused",
        ("gptq-*bit",),
    )
    yield Encoding(
        "integers",
        f"AWQ in {awq.PACKING.bits} bits: GEMM, GEMV and GEMV-fast",
        f"{parts} and their shapes",
        "read; scaled activations are refused",
        ("awq-4bit",),
    )
    yield Encoding(
        "integers",
        "Marlin in 4 bits, of AutoGPTQ and AutoAWQ",
        "`B` and `s`, or `qweight` and `scales`, and their shapes",
        "read; 8 bits and 2:4 sparse ones are refused",
    )
    yield Encoding(
        "codebooks",
        "AQLM; VPTQ with and without a correction",
        "`codes` and `codebooks`; `indices` and `centroids`, and for VPTQ the config",
        "read; outliers of VPTQ are refused",
        rounded="AQLM: the sum of all entries, and the product, VPTQ: each sum and product; to the "
        "codebooks'",
    )
    yield Encoding(
        "",
        "EXL2, EXL3 and others",
        "their scales, zero points and codebooks",
        "not yet; refused",
    )
    yield Encoding(
        "",
        "every other safetensors dtype",
        "",
        "passed through as it is; floats are cast if a dtype is named, or with `--cast-all`",
    )


def tables() -> dict[str, str]:
    """Return the tables in Markdown.

    Raises
    ------
    ValueError
        If a registry and the rows differ in their ids.
    """
    rows, kinds = list(formats()), list(encodings())
    _same("formats", set(WRITERS), {id_ for row in rows for id_ in row.ids})
    _same("encodings", set(FAMILIES), {row.scheme for row in kinds} - {""})
    _same("targets", set(ENCODINGS), {name for row in kinds for name in _targets(row)})
    return {
        "formats": _table("format", "state", rows=[(row.name, _state(row)) for row in rows]),
        "encodings": _table(
            "encoding",
            "recognised by",
            "state",
            rows=[(*row[1:3], _encoding_state(row)) for row in kinds],
        ),
        "roundings": _table(
            "encoding",
            "its library rounds in between",
            rows=[(row.name, row.rounded) for row in kinds if row.rounded],
        ),
        "loading": _table("encoding", "loads in", rows=_loading()),
        "exceptions": _table(
            "program", "encodings", "of what", "", "why; what works", "known by", rows=_exceptions()
        ),
    }


def _loading() -> list[tuple[str, str]]:
    """Return what loads each encoding; those that the same programs load in one row."""
    together: dict[str, list[str]] = {}
    for name in ("safetensors", "gguf", "npz", "npy", "torch", *ENCODINGS, *LAYOUTS):
        together.setdefault(loaders(name), []).append(f"`{name}`")
    return [(", ".join(names), programs) for programs, names in together.items()]


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


def _state(row: Format) -> str:
    written = row.folder and find_spec(f"anamnesis.formats.{row.folder}.write")
    return ("read and written" if written else "read") + row.more


def _targets(row: Encoding) -> list[str]:
    """Return the targets that write an encoding."""
    return [name for name in ENCODINGS if any(fnmatchcase(name, p) for p in row.written)]


def _encoding_state(row: Encoding) -> str:
    written = ", ".join(f"`{name}`" for name in _targets(row))
    return f"{row.state}; written as {written}" if written else row.state


def _same(what: str, ids: set[str], shown: set[str]) -> None:
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
    return TABLE.sub(
        lambda one: f"<!-- table: {one[1]} -->\n\n{made[one[1]]}\n\n<!-- /table -->", text
    )


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(renewed(page.read_text(encoding="utf-8")), encoding="utf-8")
