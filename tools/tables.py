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
from anamnesis.convert.targets import ENCODINGS
from anamnesis.formats.gguf.read import _BLOCK_NUMBERS
from anamnesis.formats.writers import WRITERS
from anamnesis.schemes.packed import awq, gptq
from anamnesis.schemes.registry import SCHEMES

__all__ = ["PAGES", "renewed", "tables"]

PROJECT = Path(__file__).parents[1]
PAGES = (PROJECT / "README.md", PROJECT / "docs" / "formats.md")
TABLE = re.compile(r"<!-- table: (\w+) -->\n.*?<!-- /table -->", re.S)


class Format(NamedTuple):
    """A row of the formats: which it is of, where it is written, and what is said of it."""

    ids: tuple[str, ...]
    folder: str
    name: str
    more: str = ""


class Encoding(NamedTuple):
    """A row of the encodings; `scheme` is empty for what no scheme reads.

    `written` are the names of targets that write it, as shell patterns.
    """

    scheme: str
    name: str
    told_by: str
    state: str
    written: tuple[str, ...] = ()


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
    )
    yield Encoding(
        "fp8",
        "FP8 per channel, FP8 per tensor (compressed-tensors, ModelOpt, Mistral, …)",
        "`weight_scale`, `qscale_weight`, …",
        "read",
        ("fp8-channel*", "fp8-tensor*"),
    )
    yield Encoding(
        "fp8",
        "MXFP8: one power of two for 32 values",
        "E8M0 or U8 scales",
        "read",
        ("mxfp8*",),
    )
    yield Encoding(
        "fp8",
        "scaled FP8 of ComfyUI and kohya",
        "`scale_weight` and the `scaled_fp8` marker, or `comfy_quant`",
        "read",
    )
    yield Encoding(
        "fp4",
        "NVFP4 and MXFP4 of compressed-tensors, ModelOpt, gpt-oss, DeepSeek, MLX, ComfyUI, torchao "
        "and Quark",
        "two codes to a byte, with scales in E4M3 or E8M0",
        "read",
        ("nvfp4*", "mxfp4*"),
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
        "INT8 of ModelOpt, Quark, ComfyUI, torchao and quanto",
        "`weight_scale`, `comfy_quant`, … and the config",
        "read; inputs scaled by `pre_quant_scale` are refused",
    )
    yield Encoding("integers", "MLX's affine integers of 1 to 8 bits", "`scales`, `biases`", "read")
    yield Encoding(
        "integers",
        "INT4 of ModelOpt and torchao; HQQ in 1, 2, 4 and 8 bits; BitNet",
        "`weight_scale`, `_weight_qdata`, `W_q` and their shapes",
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
    refused = [bits for bits in gptq.WIDTHS if bits not in gptq.PACKINGS]
    yield Encoding(
        "gptq",
        f"GPTQ in {_listed(gptq.PACKINGS)} bits, act-order or not, `gptq` and `gptq_v2`; "
        "AutoRound's packings of it",
        f"{parts}, `g_idx` and their shapes",
        f"read; {_listed(refused)} bits, embeddings and Marlin are refused",
    )
    yield Encoding(
        "awq",
        f"AWQ in {awq.PACKING.bits} bits, the GEMM layout",
        f"{parts} and their shapes",
        "read; GEMV, Marlin and scaled activations are refused",
    )
    yield Encoding(
        "",
        "EXL2, AQLM, VPTQ and others",
        "their scales, zero points and codebooks",
        "not yet; refused",
    )
    yield Encoding(
        "",
        "every other safetensors dtype",
        "",
        "passed through as it is; floats are cast with `--cast-all`",
    )


def tables() -> dict[str, str]:
    """Return both tables in Markdown.

    Raises
    ------
    ValueError
        If a registry and the rows differ in their ids.
    """
    rows, kinds = list(formats()), list(encodings())
    _same("formats", set(WRITERS), {id_ for row in rows for id_ in row.ids})
    _same("encodings", set(SCHEMES), {row.scheme for row in kinds} - {""})
    _same("targets", set(ENCODINGS), {name for row in kinds for name in _targets(row)})
    return {
        "formats": _table("format", "state", rows=[(row.name, _state(row)) for row in rows]),
        "encodings": _table(
            "encoding",
            "recognised by",
            "state",
            rows=[(*row[1:3], _encoding_state(row)) for row in kinds],
        ),
    }


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
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


def renewed(text: str) -> str:
    """Return a page with both tables as they are now.

    Raises
    ------
    ValueError
        If it does not have each of them once.
    """
    made = tables()
    if sorted(TABLE.findall(text)) != sorted(made):
        raise ValueError("a page has each table once")
    return TABLE.sub(
        lambda found: f"<!-- table: {found[1]} -->\n\n{made[found[1]]}\n\n<!-- /table -->", text
    )


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(renewed(page.read_text(encoding="utf-8")), encoding="utf-8")
