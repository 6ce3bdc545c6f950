"""A part that is missing, or cut short, where the config, a marker or the file speaks of it.

Of checkpoints that libraries made, each stored tensor is taken out, and each part of a weight cut
along each axis. The run must stop, or every value that is left must be what it was: then the
tensor was a weight of its own, or one that nothing but a runtime needs.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from anamnesis.base.dtypes import DTYPES
from anamnesis.base.limits import UNLIMITED
from anamnesis.base.stored import StoredTensor
from anamnesis.checkpoint.open import open_checkpoint
from anamnesis.formats.base import Opening
from anamnesis.model import Model, Origin
from anamnesis.opening import _claim
from anamnesis.schemes.core.plain import Plain
from anamnesis.sources.memory import BufferSource
from helpers.handmade import Entry, write_safetensors

Change = Callable[[dict[str, StoredTensor]], dict[str, StoredTensor]]
Values = dict[str, tuple[tuple[int, ...], bytes]]

ROOT = os.environ.get("ANAMNESIS_REAL")
MODERN = sorted(path for path in Path(ROOT, "modern").iterdir() if path.is_dir()) if ROOT else []
SLICES = [
    path
    for family in ("fp8", "gptq", "awq", "bnb")
    for path in (sorted(Path(ROOT, family).glob("*.safetensors")) if ROOT else ())
    if "expected" not in path.name
]
# Of slices without a config: what their models' said.
BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}
STRATEGY = {"num_bits": 8, "type": "float", "symmetric": True}
CONFIGS: dict[str, dict[str, Any]] = {
    "exaone_fine_grained": BLOCKS,
    "qwen3_1_7b_fine_grained": BLOCKS,
    "llama_1b_int8": {"quant_method": "bitsandbytes", "load_in_8bit": True},
    "ministral_per_tensor": {"quant_method": "fp8", "weight_block_size": None},
    **{
        f"llama_{name}": {
            "quant_method": "compressed-tensors",
            "config_groups": {"a": {"targets": ["Linear"], "weights": {**STRATEGY, **more}}},
        }
        for name, more in (
            ("dynamic_per_channel", {"strategy": "channel"}),
            ("static_per_tensor", {"strategy": "tensor"}),
        )
    },
}


def opened(path: Path, change: Change) -> Model:
    checkpoint = open_checkpoint(path, UNLIMITED, Opening(False, False, None))
    section = CONFIGS.get(path.stem)
    if section is not None:
        checkpoint.config = {"quantization_config": section}
    checkpoint.stored = change(dict(checkpoint.stored))
    ledger = _claim(checkpoint, None, None, folds=False)
    return Model(checkpoint, ledger, UNLIMITED, Origin(an.parse, None, {}))


def values(model: Model) -> Values:
    found = {}
    for name in model.keys() - model.problems.keys():
        weight = model._ledger.weights[name]
        is_number = not isinstance(weight, Plain) or weight.parts[0].dtype.kind == "float"
        raw = model[name].numpy("f32").tobytes() if is_number else weight.parts[0].read()
        found[name] = weight.shape, raw
    return found


def stops_or_is_the_same(path: Path, change: Change, wanted: Values, known: set[str]) -> bool:
    try:
        with opened(path, change) as model:
            return model.problems.keys() > known or values(model) == wanted
    except an.AnamnesisError:
        return True


@pytest.mark.skipif(not ROOT, reason="ANAMNESIS_REAL names no folder of checkpoints")
def test_there_are_checkpoints() -> None:
    assert len(MODERN) > 100
    assert len(SLICES) > 10


# What tells EXL3's codebook from the one without a mark; configs tell since exllamav3 0.0.9 alone.
UNMARKED = {
    "exl3": {f"model.layers.0.self_attn.{end}" for end in ("q_proj.mcg", "k_proj.mul1")},
}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("path", [*MODERN, *SLICES], ids=lambda path: path.stem)
def test_nothing_is_missing_in_silence(path: Path) -> None:
    with opened(path, lambda stored: stored) as whole:
        wanted, known, ledger = values(whole), set(whole.problems), whole._ledger
        silent = []
        for name in ledger.stored.keys() - known:
            weight = ledger.weights.get(name)
            is_alone = isinstance(weight, Plain) and [p.name for p in weight.parts] == [name]
            left = {k: v for k, v in wanted.items() if k != name} if is_alone else wanted

            def without(stored: dict[str, StoredTensor], name: str = name) -> dict[str, Any]:
                return {k: v for k, v in stored.items() if k != name}

            if not stops_or_is_the_same(path, without, left, known):
                silent.append(name)
        assert set(silent) == UNMARKED.get(path.stem, set())


# Of what the config does not speak: it has two codebooks, and this layer one.
UNTOLD = {"aqlm": "model.layers.0.mlp.down_proj.codebooks"}


def cut(tensor: StoredTensor) -> Iterator[StoredTensor]:
    """The first half along each axis, and all but the last."""
    raw = np.frombuffer(tensor.read(), np.uint8).reshape(*tensor.shape, -1)
    for axis, n in enumerate(tensor.shape):
        for kept in {n // 2, n - 1} - {0}:
            data = raw.take(range(kept), axis).tobytes()
            shape = (*tensor.shape[:axis], kept, *tensor.shape[axis + 1 :])
            source = BufferSource(data, tensor.source.name)
            yield tensor._replace(shape=shape, n_bytes=len(data), offset=0, source=source)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("path", [*MODERN, *SLICES], ids=lambda path: path.stem)
def test_nothing_is_cut_in_silence(path: Path) -> None:
    with opened(path, lambda stored: stored) as whole:
        wanted, known, ledger = values(whole), set(whole.problems), whole._ledger
        beside = {
            part.name
            for weight in ledger.weights.values()
            if not isinstance(weight, Plain)
            for part in weight.parts[1:]
        }
        silent = []
        for name in beside - {UNTOLD.get(path.stem)}:
            for shorter in cut(ledger.stored[name]):

                def with_it(
                    stored: dict[str, StoredTensor], name: str = name, shorter: Any = shorter
                ) -> dict[str, StoredTensor]:
                    return {**stored, name: shorter}

                if not stops_or_is_the_same(path, with_it, wanted, known):
                    silent.append(shorter)
        assert not silent


@pytest.mark.sampled(2)
@pytest.mark.parametrize("path", [*MODERN, *SLICES], ids=lambda path: path.stem)
def test_no_scales_are_left_as_weights_where_codes_are_floats(path: Path) -> None:
    with opened(path, lambda stored: stored) as whole:
        known, weights = set(whole.problems), dict(whole._ledger.weights)
    for weight in weights.values():
        codes, *beside = weight.parts
        if isinstance(weight, Plain) or not beside:
            continue
        data = bytes(2 * codes.n_elements)
        source = BufferSource(data, codes.source.name)
        floats = codes._replace(dtype=DTYPES["BF16"], n_bytes=len(data), offset=0, source=source)

        def with_floats(stored: dict[str, StoredTensor], floats: Any = floats) -> Any:
            return {**stored, floats.name: floats}

        try:
            with opened(path, with_floats) as model:
                is_told = model.problems.keys() > known
                plain = {part.name for part in beside} & model.keys()
        except an.AnamnesisError:
            continue
        assert is_told or not plain, codes.name


# --- made by hand ---------------------------------------------------------------------------------


def of(dtype: str, *shape: int) -> Entry:
    n = 1
    for size in shape:
        n *= size
    return dtype, shape, b"\x01" * DTYPES[dtype].n_bytes(n)


def groups(**weights: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}


def packed(**more: Any) -> dict[str, Any]:
    told = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}
    return {"quantization_config": {**groups(**{**told, **more}), "version": "0.20.0"}}


SHAPE: Entry = ("I64", (2,), np.array([16, 128], "<i8").tobytes())
INTEGERS = {
    "a.weight_packed": of("I32", 16, 16),
    "a.weight_scale": of("F32", 16, 4),
    "a.weight_shape": SHAPE,
}
LISTED: Entry = ("I32", (128,), np.arange(128, dtype="<i4").tobytes())
AFFINE = {
    "a.weight": of("U32", 16, 16),
    "a.scales": of("BF16", 16, 2),
    "a.biases": of("BF16", 16, 2),
}
MLX = {"quantization": {"bits": 4, "group_size": 64, "mode": "affine"}}
SMALL = {"a.weight": of("U32", 16, 16), "a.scales": of("U8", 16, 4)}
MXFP4 = {"quantization": {"bits": 4, "group_size": 32, "mode": "mxfp4"}}
NVFP4 = {
    "a.weight_packed": of("U8", 16, 32),
    "a.weight_scale": of("F8_E4M3", 16, 4),
    "a.weight_global_scale": of("F32", 1),
}
FLOATS = groups(num_bits=4, type="float", strategy="tensor_group", group_size=16)
MARKER = json.dumps({"format": "float8_e4m3fn_blockwise", "group_size": 32}).encode()
COMFY = {
    "a.weight": of("F8_E4M3", 64, 64),
    "a.weight_scale": of("F32", 2, 2),
    "a.comfy_quant": ("U8", (len(MARKER),), MARKER),
}
GPTQ = {
    "a.qweight": of("I32", 16, 64),
    "a.qzeros": of("I32", 4, 8),
    "a.scales": of("F16", 4, 64),
}
BY_GPTQ = {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32}}
FP8 = {"a.weight": of("F8_E4M3", 128, 256), "a.weight_scale_inv": of("F32", 1, 2)}
TORCHAO = {
    "a._weight_qdata": of("U8", 16, 32),
    "a._weight_scale": of("F8_E4M3", 16, 4),
    "a._weight_per_tensor_scale": of("F32"),
}
NAMES = {
    "a.weight": json.dumps(
        {"_type": "NVFP4Tensor", "_tensor_data_names": ["qdata", "scale", "per_tensor_scale"]}
    )
}

# What is stored, what the config says, the part that is missing, and what is said of it.
MISSING: dict[str, tuple[dict[str, Entry], dict[str, Any], str, str]] = {
    "zero points": (
        {**INTEGERS, "a.weight_zero_point": of("I32", 2, 4)},
        packed(symmetric=False),
        "a.weight_zero_point",
        r"its weight_zero_point is missing, which group_0 of config_groups asks for \(symmetric",
    ),
    "groups of columns": (
        {**INTEGERS, "a.weight_g_idx": ("I32", (128,), bytes(512))},
        packed(actorder="group"),
        "a.weight_g_idx",
        "its weight_g_idx is missing.*actorder: group",
    ),
    "groups of GPTQ's": (
        {**GPTQ, "a.g_idx": ("I32", (128,), bytes(512))},
        {"quantization_config": {**BY_GPTQ["quantization_config"], "desc_act": True}},
        "a.g_idx",
        "its g_idx is missing.*desc_act: true",
    ),
    "words": (AFFINE, MLX, "a.weight", "a.biases.*looks like a part|MLX"),
    "words without a config": (AFFINE, MLX, "a.weight", "looks like a part|MLX"),
    "words of small floats": (SMALL, MXFP4, "a.weight", "looks like a part|MLX"),
    "scales of a marked layer": (COMFY, {}, "a.weight_scale", "has no scale, but ComfyUI's marker"),
    "a second scale": (TORCHAO, {}, "a._weight_per_tensor_scale", "_tensor_data_names"),
    "blocks": (
        {"a.blocks": of("U8", 2, 16, 2, 16), "a.scales": of("U8", 2, 16, 2)},
        {},
        "a.blocks",
        "a.scales.*looks like a part",
    ),
    "scales of blocks": (
        {"a.blocks": of("U8", 2, 16, 2, 16), "a.scales": of("U8", 2, 16, 2)},
        {},
        "a.scales",
        "a.blocks.*looks like a part",
    ),
}
# The part that is another one, and what is said of it.
OTHERS: dict[str, tuple[dict[str, Entry], dict[str, Any], str, Entry, str]] = {
    "groups of 32 as 16": (
        NVFP4,
        {"quantization_config": FLOATS},
        "a.weight_scale",
        of("F8_E4M3", 16, 2),
        "looks like a part|cannot be decoded",
    ),
    "one scale for blocks": (
        FP8,
        {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}},
        "a.weight_scale_inv",
        of("F32", 1, 1),
        r"1 x 1 scales, but weight_block_size \[128, 128\] says",
    ),
    "floats of 8 bits": (SMALL, MXFP4, "a.scales", of("U8", 16, 2), "8-bit floats .* mxfp4|4-bit"),
    "codes of 8 bits": (
        {**GPTQ, "a.qzeros": of("I32", 1, 8), "a.scales": of("F16", 1, 64)},
        {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}},
        "a.qzeros",
        of("I32", 1, 16),
        "8-bit ints .* says 4-bit",
    ),
    "one group": (INTEGERS, packed(), "a.weight_scale", of("F32", 16, 1), "in groups of 32"),
    "larger blocks": (COMFY, {}, "a.weight_scale", of("F32", 1, 2), "ComfyUI's marker"),
    "blocks of two rows": (
        {"a.weight": of("F8_E4M3", 64, 64), "a.weight_scale": of("F32", 64, 1)},
        {},
        "a.weight_scale",
        of("F32", 32, 1),
        "does not fit",
    ),
}


def folder(path: Path, tensors: dict[str, Entry], config: dict[str, Any]) -> Path:
    is_described = "a._weight_qdata" in tensors
    write_safetensors(path / "model.safetensors", tensors, NAMES if is_described else None)
    (path / "config.json").write_text(json.dumps(config))
    return path


def problem(path: Path) -> str:
    with an.parse(path) as model:
        errors = [str(error) for error in model.problems.values()]
    return "\n".join(errors)


@pytest.mark.parametrize("case", MISSING)
def test_missing(case: str, tmp_path: Path) -> None:
    tensors, config, part, why = MISSING[case]
    config = {} if case.endswith("without a config") else config
    with_all = {**MLX} if case.endswith("without a config") else config
    assert not problem(folder(tmp_path / "all", tensors, with_all))
    rest = {name: entry for name, entry in tensors.items() if name != part}
    path = folder(tmp_path / "rest", rest, config)
    found = problem(path)
    assert any(re.search(why, line) for line in found.splitlines()), found
    with pytest.raises(an.AnamnesisError), an.parse(path) as model:
        model.remember(lambda *_: None)
    with an.parse(path) as model:
        model.remember(tmp_path / "out", allow_unknown=True)
    with an.parse(tmp_path / "out" / "model.safetensors") as copied:
        assert copied._checkpoint.stored.keys() >= rest.keys() - {"a.comfy_quant"}


@pytest.mark.parametrize("case", OTHERS)
def test_of_another_shape(case: str, tmp_path: Path) -> None:
    tensors, config, part, other, why = OTHERS[case]
    assert not problem(folder(tmp_path / "all", tensors, config))
    found = problem(folder(tmp_path / "other", {**tensors, part: other}, config))
    assert any(re.search(why, line) for line in found.splitlines()), found


# --- which layers a config speaks of --------------------------------------------------------------


def mixed(*said: tuple[list[str], str, int]) -> dict[str, Any]:
    told = {"num_bits": 4, "type": "int", "symmetric": True}
    return {
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "version": "0.20.0",
            "config_groups": {
                f"group_{i}": {
                    "targets": targets,
                    "weights": {**told, "strategy": strategy, "group_size": size},
                }
                for i, (targets, strategy, size) in enumerate(said)
            },
        }
    }


@pytest.mark.parametrize(
    ("said", "reads"),
    [
        ([(["Linear"], "group", 32)], True),
        ([(["Linear"], "group", 64)], False),
        ([(["Linear"], "group", 64), (["a"], "group", 32)], True),
        ([(["Linear"], "group", 32), (["a"], "group", 64)], False),
        ([(["Linear"], "group", 64), (["re:.*a$"], "group", 32)], True),
        ([(["Linear"], "group", 32), (["re:^(a|b)$"], "group", 64)], False),
        ([(["re:.*b$"], "group", 64), (["Linear"], "group", 32)], True),
        ([(["x.a"], "group", 32), (["Linear"], "group", 64)], False),  # no layer's name
        ([(["X"], "group", 32), (["Linear"], "group", 64)], True),  # a class that may be any
        ([(["re:(x+x+)+y"], "group", 32), (["Linear"], "group", 64)], True),  # not run
    ],
)
def test_who_is_spoken_of(
    said: list[tuple[list[str], str, int]], reads: bool, tmp_path: Path
) -> None:
    assert bool(problem(folder(tmp_path, INTEGERS, mixed(*said)))) != reads


def test_what_is_left_alone_is_as_it_shows(tmp_path: Path) -> None:
    config = mixed((["Linear"], "group", 64))
    config["quantization_config"]["ignore"] = ["re:.*a$"]
    assert not problem(folder(tmp_path, INTEGERS, config))
