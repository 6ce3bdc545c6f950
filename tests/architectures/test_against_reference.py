"""Directories become the GGUF that llama.cpp's converter makes of them: its keys, its tensors."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase as fnmatch
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from ml_dtypes import bfloat16

import anamnesis as an
from helpers import recorded_hf
from helpers.handmade import write_safetensors
from helpers.recorded_hf import NAMES, digest, recorded

# What differs on purpose, by model: globs of keys and tensors, each of which something matches.
ON_PURPOSE = {
    # The converter leaves MXFP4 as it is in float32 files too; here f32 is what is asked for.
    "gpt_oss_mxfp4": ("general.file_type", "blk.*.ffn_*_exps.weight"),
    # Of a DeepSeek without a rank of queries llama.cpp asks for one, if it has other layers.
    "deepseek2_lite": ("deepseek2.attention.q_lora_rank",),
    # Those of transformers' config class, which knows other names of what config.json has.
    "nomic_bert": ("nomic-bert.attention.key_length", "nomic-bert.attention.value_length"),
}
QUANTIZED = json.loads(Path(__file__).with_name("quantized.json").read_text())["files"]


def converted(name: str, folder: Path, to: str) -> Path:
    """Return the GGUF of a recorded model."""
    root = recorded_hf.remake(name, folder / "hf")
    an.convert(root, folder / "out.gguf", to, tokenizer_pre=recorded(name).pre)
    return folder / "out.gguf"


def differing(name: str, path: Path) -> set[str]:
    """Return the keys and tensors that differ in anything, or that only one has."""
    found, expected = recorded_hf.described(path), recorded(name)
    pairs = ((found["keys"], expected.keys), (found["tensors"], expected.tensors))
    return {n for ours, theirs in pairs for n in {*ours, *theirs} if ours.get(n) != theirs.get(n)}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", NAMES)
def test_as_the_converter(name: str, tmp_path: Path) -> None:
    differ = differing(name, converted(name, tmp_path, "gguf-f32"))
    globs = ON_PURPOSE.get(name, ())
    assert {key for key in differ if not any(fnmatch(key, glob) for glob in globs)} == set()
    assert [glob for glob in globs if not any(fnmatch(key, glob) for key in differ)] == []


def test_experts_in_mxfp4_are_moved(tmp_path: Path) -> None:
    """The converter's file has them so, and says it as this mix does; the rest of it is F32."""
    differ = differing("gpt_oss_mxfp4", converted("gpt_oss_mxfp4", tmp_path, "gguf-mxfp4_moe"))
    assert {
        name for name in differ if "exps.weight" in name or name.startswith("general.")
    } == set()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "mix"), [(name, mix) for name, mixes in QUANTIZED.items() for mix in mixes]
)
def test_as_llama_quantize_after_the_converter(name: str, mix: str, tmp_path: Path) -> None:
    """In one pass, from BF16: the same file, byte for byte."""
    made = converted(name, tmp_path, f"gguf-{mix}")
    assert digest(made.read_bytes()) == QUANTIZED[name][mix]


def test_codes_are_moved_by_name(tmp_path: Path) -> None:
    """To an encoding that is no mix: what is in it, moved, all else as it is."""
    differ = differing("gpt_oss_mxfp4", converted("gpt_oss_mxfp4", tmp_path, "gguf-mxfp4"))
    assert not [name for name in differ if name.endswith(("exps.weight", "bias", "norm.weight"))]


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        (["F32", "F32"], "F16"),
        (["F32", "BF16"], "BF16"),
        (["F16", "BF16"], "F16"),
        (["BF16", "F16"], "BF16"),
    ],
)
def test_floats_are_those_of_the_first_matrix_of_16_bits(
    dtypes: list[str], expected: str, tmp_path: Path
) -> None:
    """As `--outtype auto` of the converter has it, which looks at no vectors; F16 without one."""
    root = recorded_hf.remake("llama", tmp_path / "hf")
    with an.parse(root) as model:
        arrays = {name: model[name].numpy(dtype="f32") for name in model}
    names = [name for name, array in arrays.items() if array.ndim > 1]
    kinds = {**dict.fromkeys(arrays, "F32"), **dict.fromkeys(set(arrays) - {*names}, "BF16")}
    kinds |= dict(zip(names, dtypes, strict=False))
    entries = {name: _stored(array, kinds[name]) for name, array in arrays.items()}
    write_safetensors(root / "model.safetensors", entries)
    an.convert(root, tmp_path / "out.gguf", "gguf", tokenizer_pre=recorded("llama").pre)
    found = recorded_hf.described(tmp_path / "out.gguf")
    assert found["tensors"]["blk.0.attn_q.weight"][0] == expected
    assert found["keys"]["general.file_type"]["value"] == {"F16": 1, "BF16": 32}[expected]


def _stored(array: npt.NDArray[np.float32], kind: str) -> tuple[str, list[int], bytes]:
    dtype = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype(bfloat16)}[kind]
    return kind, list(array.shape), array.astype(dtype).tobytes()


@pytest.mark.parametrize("to", ["gguf", "gguf-auto", "gguf-keep", "gguf-copy"])
def test_codes_that_gguf_has_stay_where_nothing_else_is_asked(to: str, tmp_path: Path) -> None:
    """As the converter does by default: experts in MXFP4 as they are, all else in BF16."""
    found = recorded_hf.described(converted("gpt_oss_mxfp4", tmp_path, to))
    expected = recorded("gpt_oss_mxfp4")
    experts = [name for name in expected.tensors if name.endswith("exps.weight")]
    assert experts
    assert {name: found["tensors"][name] for name in experts} == {
        name: list(expected.tensors[name]) for name in experts
    }
    assert found["tensors"]["blk.0.attn_q.weight"][0] == "BF16"
    assert (
        to == "gguf-copy"
        or found["keys"]["general.file_type"] == expected.keys["general.file_type"]
    )
