"""Weights of every family with a part missing, misshapen, of another dtype, or one too many.

The weights are the seeds of the fuzzer of schemes, of which there is one for each family.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from math import prod
from pathlib import Path

import pytest

import anamnesis as an
from anamnesis.base.dtypes import DTYPES
from helpers.handmade import Entry, safetensors_bytes

CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus" / "fuzz_schemes"
SEEDS = sorted(path.name for path in CORPUS.iterdir() if path.name.count("-") and path.is_file())
NOT_ONE = ("gptq-bad-g_idx", "torchao-pickle")  # weight that is right, in safetensors

# What is another weight, by the seed: then it comes out as that, and nothing is left of it.
STILL_READ = {
    "bnb-fp4-double": {"flat weight", "turned weight"},  # any shape of so many bytes will do
    "codebooks-aqlm": {"longer codebooks"},
    "codebooks-sparse": {"as a complex weight.compressed"},  # numbers of any dtype
    "floats-comfy": {  # tiles are bytes in a row; rows behind the `orig_shape` are padding
        *("flat weight_scale", "turned weight_scale", "taller weight", "flat weight_scale_2"),
    },
    "floats-comfy-older": {  # one scale for all; FP8 without any is told apart by no config
        *("taller weight", "longer weight", "flat weight", "turned weight", "flat scale_weight"),
        *(
            "no scale_weight",
            "no scaled_fp8",
            "of six dimensions weight",
            "as a complex scaled_fp8",
        ),
    },
    "floats-deepseek": {"turned scale"},  # of one group
    "floats-mxfp8": {"flat weight_scale"},
    "floats-named-fp4": {"turned weight_scale", "flat weight_scale_2"},
    "floats-packed-fp4": {"turned weight_scale"},
    "floats-quanto": {"longer weight._data", "flat weight._scale"},
    "floats-scaled": {"longer weight", "flat weight_scale", "longer weight_scale"},
    "gptq-2bit": {"taller qweight"},
    "integers-bitnet": {"taller weight", "longer weight", "turned weight"},
    "integers-comfy": {
        *("taller weight", "longer weight", "turned weight", "flat weight_scale"),
        "no comfy_quant",
    },
    "integers-comfy-int4": {"no weight_codebook"},  # levels stand for themselves then
    "integers-gemma": {"longer embedding_quantized", "longer embedding_scale"},  # more scales a row
    "integers-hqq": {"flat nbits", "flat axis"},
    "integers-modelopt": {"longer weight", "longer weight_scale", "more weight_scale_2"},
    "integers-one-byte": {
        *("longer weight", "turned weight"),
        *("longer weight_scale", "flat weight_scale", "turned weight_scale"),
    },
    "integers-quanto": {"longer weight._data._data"},
    "schemes-bnb-four-bit": {"flat weight", "turned weight"},
    "schemes-bnb-int8": {"longer weight"},
    "words-marlin": {"taller B", "taller s", "no B", "as a complex B"},  # B may be anything
    "words-marlin-24": {"taller scale_packed"},
    "words-quark": {"taller weight"},
}
# Names that mean something only beside others, and pass as what they are.
PASSES = {
    "codebooks-aqlm": {"more weight.absmax"},
    "codebooks-sparse": {"more scales", "more weight.absmax"},
    "codebooks-vptq": {"more scales", "more weight.absmax"},
    "floats-gpt-oss": {"more scales", "more weight.absmax"},
    "integers-gemma": {"more scales", "more weight.absmax"},
    "trellis-exl3": {"more scales", "more weight.absmax"},
}
MORE = (
    *("weight_scale_inv", "weight_scale_2", "weight_global_scale", "weight_zero_point", "qzeros"),
    *("scales", "g_idx", "weight.absmax", "comfy_quant", "scale_weight"),
)


def entries(raw: bytes) -> tuple[dict[str, Entry], dict[str, str] | None]:
    size = int.from_bytes(raw[:8], "little")
    header, data = json.loads(raw[8 : 8 + size]), raw[8 + size :]
    metadata = header.pop("__metadata__", None)
    return {
        name: (told["dtype"], tuple(told["shape"]), data[slice(*told["data_offsets"])])
        for name, told in header.items()
    }, metadata


def misshapen(entry: Entry) -> Iterator[tuple[str, Entry]]:
    """A part with other shapes, and as another dtype."""
    dtype, told, raw = entry
    shape = tuple(told)
    shapes = {
        "taller": (shape[0] + 1, *shape[1:]) if shape else (2,),
        "longer": (*shape[:-1], shape[-1] + 1) if len(shape) > 1 else shape,
        "flat": (prod(shape),),
        "turned": shape[::-1],
        "of six dimensions": (1, 2, 1, 2, 1, 2),
    }
    for what, other in shapes.items():
        n_bytes = DTYPES[dtype].n_bytes(prod(other))
        if other != shape and n_bytes and raw:
            yield what, (dtype, other, (raw * (n_bytes // len(raw) + 1))[:n_bytes])
    yield "as a complex", ("C64", shape, bytes(8 * prod(shape)))


def refusal(folder: Path, tensors: dict[str, Entry], metadata: dict[str, str] | None) -> str:
    """What stops a conversion; nothing if all comes out."""
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors, metadata))
    try:
        with an.parse(folder) as model:
            model.remember(lambda *_: None)
    except an.AnamnesisError as error:
        return str(error)
    return ""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", [seed for seed in SEEDS if seed not in NOT_ONE])
def test_parts(seed: str, tmp_path: Path) -> None:
    builders, choices = import_module("structured_schemes"), import_module("structured").Choices
    raw, config = builders.checkpoint(choices((CORPUS / seed).read_bytes()))
    (tmp_path / "config.json").write_text(json.dumps(config or {}))
    tensors, metadata = entries(raw)
    module = next(iter(tensors)).partition(".")[0]
    assert not refusal(tmp_path, tensors, metadata)
    changed: dict[str, dict[str, Entry]] = {}
    for name, entry in tensors.items():
        part = name.removeprefix(f"{module}.")
        changed[f"no {part}"] = {k: v for k, v in tensors.items() if k != name}
        for what, other in misshapen(entry):
            changed[f"{what} {part}"] = {**tensors, name: other}
    for part in MORE:
        if f"{module}.{part}" not in tensors:
            one: Entry = ("F32", (1,), b"\0\0\x80\x3f")
            changed[f"more {part}"] = {**tensors, f"{module}.{part}": one}
    refusals = {what: refusal(tmp_path, parts, metadata) for what, parts in changed.items()}
    assert not any("\n" in why for why in refusals.values())
    read = {what for what, why in refusals.items() if not why}
    assert read == STILL_READ.get(seed, set()) | PASSES.get(seed, set())
