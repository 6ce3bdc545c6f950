"""Tensors that a scheme claims or refuses, as a file or as a model's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from helpers.handmade import Entry, safetensors_bytes, write_safetensors

Tensors = dict[str, Entry]


def empty(dtype: str, *shape: int) -> Entry:
    width = {"U8": 1, "I8": 1, "BOOL": 1, "F16": 2, "BF16": 2, "I16": 2, "F32": 4, "I32": 4}
    width |= {"U32": 4, "I64": 8, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1}
    return dtype, shape, bytes(int(np.prod(shape, dtype=np.int64)) * width[dtype])


def refusal(tensors: Tensors, **how: Any) -> an.AnamnesisError:
    """The error that every kind of conversion stops with."""
    metadata = how.pop("metadata", None)
    model = an.parse(safetensors_bytes(tensors, metadata), **how)
    with pytest.raises((an.UnsupportedError, an.ParseError)) as caught:
        model.remember(lambda *_: pytest.fail("a weight came out"))
    assert type(caught.value) in (an.UnsupportedError, an.ParseError)
    return caught.value


def described(path: Path, config: dict[str, Any], tensors: Tensors) -> Path:
    path.with_name("config.json").write_text(json.dumps(config))
    return write_safetensors(path, tensors)


Q = "model.layers.0.self_attn.q_proj"
NORM: Tensors = {"model.norm.weight": empty("BF16", 8)}


def directory(root: Path, config: dict[str, Any], tensors: Tensors) -> Path:
    described(root / "model.safetensors", config, tensors)
    return root
