"""Directories become the GGUF that llama.cpp's converter makes of them: its keys, its tensors."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase as fnmatch
from pathlib import Path
from typing import Any

import pytest

import anamnesis as an
from anamnesis.formats.gguf.values import Value, merged, typed
from helpers import recorded_hf, vocabularies
from helpers.recorded_hf import NAMES, digest, digest_of_array, recorded

# What differs on purpose, by model: globs of keys and tensors, each of which something matches.
ON_PURPOSE = {
    # The converter leaves MXFP4 as it is in float32 files too; here f32 is what is asked for.
    "gpt_oss_mxfp4": ("general.file_type", "blk.*.ffn_*_exps.weight"),
    # The converter has the sizes of transformers' config class, which knows other names of them.
    "nomic_bert": (
        *("nomic-bert.block_count", "nomic-bert.embedding_length"),
        *("nomic-bert.feed_forward_length", "nomic-bert.attention.head_count"),
        *("nomic-bert.attention.key_length", "nomic-bert.attention.value_length"),
    ),
}
QUANTIZED = json.loads(Path(__file__).with_name("quantized.json").read_text())["files"]


def converted(name: str, folder: Path, to: str) -> Path:
    """Return the GGUF of a recorded model; what splits the words of a cut vocabulary is told."""
    root = recorded_hf.remake(name, folder / "hf")
    pre = vocabularies.CUTS[recorded(name).vocabulary].pre or None
    an.convert(root, folder / "out.gguf", to, tokenizer_pre=pre)
    return folder / "out.gguf"


def differing_keys(name: str, model: an.Model) -> set[str]:
    """Return the keys that differ in type or value, or that only one has."""
    expected = recorded(name).keys
    found = merged(model.metadata)
    return {key for key in {*expected, *found} if not _same(key, expected, found, model.metadata)}


def _same(key: str, expected: Any, found: dict[str, Value], values: Any) -> bool:
    if key not in expected or key not in found:
        return False
    told = expected[key]
    if told["type"] != "array":
        return found[key] == typed({"type": told["type"], "value": told["value"]})
    as_told = {"type": told["of"], "value": told.get("value", values[key])}
    if found[key] != typed(as_told):  # of a long one, the type
        return False
    long = (told["length"], told["sha256"]) if "sha256" in told else None
    return long is None or long == (len(values[key]), digest_of_array(values[key]))


def stored(model: an.Model) -> dict[str, list[Any]]:
    """Return dtype, shape and digest of each tensor, as `recorded` has them."""
    return {
        part.name: [part.dtype.name, list(part.shape), digest(bytes(part.read()))]
        for weight in model._ledger.weights.values()
        for part in weight.parts
    }


@pytest.mark.parametrize("name", NAMES)
def test_as_the_converter(name: str, tmp_path: Path) -> None:
    with an.parse(converted(name, tmp_path, "gguf-f32")) as model:
        keys = differing_keys(name, model)
        tensors = stored(model)
    expected = recorded(name).tensors
    differ = keys | {n for n in {*tensors, *expected} if tensors.get(n) != expected.get(n)}
    globs = ON_PURPOSE.get(name, ())
    assert {key for key in differ if not any(fnmatch(key, glob) for glob in globs)} == set()
    assert [glob for glob in globs if not any(fnmatch(key, glob) for key in differ)] == []


def test_experts_in_mxfp4_are_moved(tmp_path: Path) -> None:
    with an.parse(converted("gpt_oss_mxfp4", tmp_path, "gguf-mxfp4_moe")) as model:
        assert differing_keys("gpt_oss_mxfp4", model) == set()
        found = stored(model)
    experts = {n: t for n, t in recorded("gpt_oss_mxfp4").tensors.items() if t[0] == "MXFP4"}
    assert {name: found[name] for name in experts} == experts


@pytest.mark.parametrize(
    ("name", "mix"), [(name, mix) for name, mixes in QUANTIZED.items() for mix in mixes]
)
def test_as_llama_quantize_after_the_converter(name: str, mix: str, tmp_path: Path) -> None:
    """In one pass, from BF16: the same file, byte for byte."""
    made = converted(name, tmp_path, f"gguf-{mix}")
    assert digest(made.read_bytes()) == QUANTIZED[name][mix]
