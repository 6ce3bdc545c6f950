"""config.json of each architecture as keys of a GGUF, and those as config.json again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from types import SimpleNamespace
from typing import Any

from structured import Choices
from traced import fuzz

import anamnesis as an
from anamnesis.architectures.arch import Arch
from anamnesis.architectures.config_of_keys import config_facts
from anamnesis.architectures.keys import BEFORE_ROPE, BEHIND_ROPE, BLOCK_COUNT, model_keys
from anamnesis.architectures.model_facts import read_facts
from anamnesis.architectures.registry import every_arch
from anamnesis.formats.gguf.values import typed

SIZES: tuple[Any, ...] = (1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
ODD: tuple[Any, ...] = (
    *(0, -1, 2**31, 2**32, 2**63, 2**70, 10**400, 0.5, 1e-6, 1e4, 1e39, float("nan"), float("inf")),
    *(True, False, None, "", "x", "softmax", "sigmoid", "silu", "gelu", [], [1], [[]], {}),
    *(["full_attention"], ["sliding_attention"] * 4, ["linear_attention", "full_attention"] * 2),
    *([1.0] * 16, [0] * 5, {"full_attention": {"rope_theta": 1e6}}, {"rope_type": "yarn"}),
    {"rope_type": "llama3", "factor": 8.0, "rope_theta": 5e5},
    {"rope_type": "longrope", "short_factor": [1.0] * 16, "long_factor": [2.0] * 16},
    {"type": "linear", "factor": 0},
)
_ROPES = ("rope_theta", "rope_scaling", "rope_parameters", "layer_types", "text_config")


def config_from(data: bytes) -> tuple[Arch, Any]:
    """Return a row, and a config for it, that an input stands for."""
    choices = Choices(data[1:])
    arch = choices.pick(every_arch())
    if data[:1] != b"S":
        try:
            return arch, json.loads(data[2:])
        except (ValueError, RecursionError):
            return arch, {}
    names = [key.fact for key in (BLOCK_COUNT, *BEFORE_ROPE, *BEHIND_ROPE, *arch.keys)]
    config = {"architectures": [arch.hf[0]], "model_type": arch.model_type, "vocab_size": 64}
    config |= {name: choices.pick(SIZES) if choices.below(4) == 3 else 32 for name in names}
    for _ in range(choices.below(6)):
        config[choices.pick((*names, *_ROPES, *arch.config))] = choices.pick(ODD)
    return arch, config


def check(data: bytes) -> None:
    """Raise whatever a config brings out that should not come out."""
    was_read(data)


def was_read(data: bytes) -> bool:
    """Return whether an input made keys; raise as `check` does."""
    arch, config = config_from(data)
    if not isinstance(config, dict):
        return False
    try:
        facts = read_facts(config, arch.model_type, arch.derived)
        keys = model_keys(arch, facts)
        extra = arch.extra(facts)
    except an.AnamnesisError as error:
        if "\n" in str(error):
            raise AssertionError("an error of several lines") from error
        return False
    for value in keys.values():
        typed(value)  # a GGUF has a place for it
    _check_back(arch, {key: value["value"] for key, value in keys.items()}, extra)
    return True


def _check_back(arch: Arch, metadata: dict[str, Any], extra: Mapping[str, Any]) -> None:
    embedding = SimpleNamespace(shape=(64, 8), own_dtype=None, parts=[])
    weights: dict[str, Any] = {"token_embd.weight": embedding}
    for name, array in islice(extra.items(), 4):
        part = SimpleNamespace(read=array.astype("<f4").tobytes)
        weights[name] = SimpleNamespace(
            shape=array.shape, own_dtype=an.base.dtypes.DTYPES["F32"], parts=[part]
        )
    try:
        told, _ = config_facts(arch, metadata, weights)
    except an.AnamnesisError:
        return
    json.dumps(told)


if __name__ == "__main__":
    fuzz(check)
