"""Whatever can be asked for by name: one weight is written so, and read again."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import anamnesis as an
from anamnesis.base.dtypes import DTYPES
from anamnesis.base.levels import resolve_level
from anamnesis.convert.request.targets import encoding
from anamnesis.schemes.core import arrays
from anamnesis.schemes.encodings import ENCODINGS, TAKING
from helpers.bitnet import bitnet_file
from helpers.handmade import write_safetensors

__all__ = ["NAMES", "written_and_read"]

NAMES = (*ENCODINGS, *TAKING)
# Of whole blocks, groups and words; and experts as gpt-oss has them. The first is looked at.
_LINEAR = {"model.layers.0.mlp.up_proj.weight": (128, 256)}
_EXPERTS = {
    "model.layers.0.mlp.experts.gate_up_proj": (2, 64, 256),
    "model.layers.0.mlp.experts.gate_up_proj_bias": (2, 256),
    "model.layers.0.mlp.experts.down_proj": (2, 128, 64),
}


def written_and_read(name: str, values: NDArray[np.float16], folder: Path) -> None:
    """Write a weight by name: what is read of the file is what the encoding has written.

    Of a layout that only takes codes it is the values that these had before.

    Raises
    ------
    UnsupportedError
        If the encoding has no codes for the values.
    """
    shapes = _EXPERTS if name.startswith("gptoss") else _LINEAR
    source = folder / "in"
    tensors = {
        of: ("F16", shape, np.resize(values, prod(shape)).tobytes()) for of, shape in shapes.items()
    }
    write_safetensors(source / "model.safetensors", tensors)
    model_type = "gpt_oss" if shapes is _EXPERTS else "llama"
    (source / "config.json").write_text(json.dumps({"model_type": model_type}))
    takes = TAKING[name].takes if name in TAKING else ""
    if takes:
        source = _bitnet(values, folder) if takes == "bitnet" else _converted(source, takes)
    weight = next(iter(shapes))
    with an.parse(source) as given, an.parse(_converted(source, name)) as model:
        assert not model.problems
        assert model[weight].is_quantized
        if takes:
            found, want = (m[weight].numpy("bf16").astype(np.float32) for m in (model, given))
        else:
            found, want = model[weight].numpy("f32"), _reopened(name, model, weight, shapes[weight])
        assert np.array_equal(found, want, equal_nan=True)


def _bitnet(values: NDArray[np.float16], folder: Path) -> Path:
    """Write the signs of values, which BitNet's ternary codes are."""
    ((name, shape),) = _LINEAR.items()
    path = folder / "bitnet.safetensors"
    signs = np.sign(np.nan_to_num(np.resize(values, shape))).astype(np.int8)
    path.write_bytes(bitnet_file(name, signs, 0.375))
    return path


def _converted(source: Path, name: str) -> Path:
    is_gguf, layout = name.startswith("gguf-"), encoding(name).layout
    has_config = layout.config_name == "config.json"
    out = source.with_name(name + (".gguf" if is_gguf else "" if has_config else ".safetensors"))
    with an.parse(source) as model:
        model.convert(out, name)
    return out


def _reopened(name: str, model: an.Model, weight: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the values of the parts that the encoding writes, wherever these are found."""
    made = encoding(name).fitted(DTYPES["F16"])
    is_turned = made.layout.turns(weight, shape)
    if is_turned:
        shape = (*shape[:-2], shape[-1], shape[-2])
    parts = tuple(model.stored[part.name] for part in made.parts(weight, shape))
    opened = made.layout.weight(weight, shape, parts)
    values = arrays.decode(opened, DTYPES["F32"], None, 1, resolve_level(None))
    return values.swapaxes(-1, -2) if is_turned else values
