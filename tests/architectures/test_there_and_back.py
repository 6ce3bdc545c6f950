"""Directories that become a GGUF and directories again have the tensors that they had."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase as fnmatch
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import pytest

import anamnesis as an
from helpers import recorded_hf
from helpers.recorded_hf import NAMES, recorded, through_gguf

Floats = npt.NDArray[np.float32]

# Globs of tensors that GGUF has no place for, by model.
LEFT = {
    "bert": ("pooler.dense.*",),
    "deepseek3_mtp": ("model.layers.3.*",),
    "gemma3_vision": ("vision_tower.*", "multi_modal_projector.*"),
    "mistral3_vision": ("vision_tower.*", "multi_modal_projector.*"),
    "qwen35_vision": ("model.visual.*",),
}
# Of these GGUF has -exp; the logarithm of that is not always the same float.
LOGARITHM = "*.linear_attn.A_log"
# Experts come back one by one, whichever way they came; transformers loads both.
STACKED = ("*.mlp.experts.gate_up_proj", "*.mlp.experts.down_proj")


def again(name: str, folder: Path) -> None:
    """Make `again.gguf` of `back/`."""
    an.convert(folder / "back", folder / "again.gguf", "gguf-f32", tokenizer_pre=recorded(name).pre)


def read(root: Path) -> dict[str, Floats]:
    """Return all tensors in float32."""
    with an.parse(root) as model:
        return {name: model[name].numpy("f32") for name in model}


def of_text(tensors: dict[str, Floats]) -> dict[str, Floats]:
    """Return tensors by the names that a model of text alone has."""
    return {name.replace("language_model.", ""): value for name, value in tensors.items()}


def one_by_one(tensors: dict[str, Floats]) -> dict[str, Floats]:
    """Return tensors with experts that are stacked taken apart."""
    found = {}
    for name, value in tensors.items():
        if not any(fnmatch(name, glob) for glob in STACKED):
            found[name] = value
            continue
        stem, _, part = name.rpartition(".")
        for i, expert in enumerate(value):
            if part == "down_proj":
                found[f"{stem}.{i}.down_proj.weight"] = expert
            else:
                gate, up = np.split(expert, 2)
                found |= {f"{stem}.{i}.gate_proj.weight": gate, f"{stem}.{i}.up_proj.weight": up}
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", NAMES)
def test_same_tensors(name: str, tmp_path: Path) -> None:
    before = of_text(read(through_gguf(name, tmp_path)))
    if name == "qwen35moe_fused":
        before = one_by_one(before)
    after = read(tmp_path / "back")
    left = LEFT.get(name, ())
    gone = before.keys() - after.keys()
    assert [tensor for tensor in gone if not any(fnmatch(tensor, glob) for glob in left)] == []
    assert [glob for glob in left if not any(fnmatch(tensor, glob) for tensor in gone)] == []
    assert after.keys() <= before.keys()
    for tensor, value in after.items():
        expected = before[tensor]
        if (name, tensor) == ("gemma3_vision", "model.embed_tokens.weight"):
            expected = expected[:512]  # as many as the vocabulary has, which is what GGUF keeps
        assert value.shape == expected.shape, tensor
        if not fnmatch(tensor, LOGARITHM):
            assert value.tobytes() == expected.tobytes(), tensor


@pytest.mark.parametrize("name", ["qwen35", "qwen35moe", "qwen3next"])
def test_logarithms_are_of_what_there_was(name: str, tmp_path: Path) -> None:
    """The float that comes back has the same exp, as the converter computes it."""
    through_gguf(name, tmp_path)
    again(name, tmp_path)
    assert recorded_hf.described(tmp_path / "again.gguf")["tensors"] == recorded(name).tensors


@pytest.mark.sampled(5)
@pytest.mark.parametrize("mix", ["q8_0", "q4_k_m"])
@pytest.mark.parametrize("name", ["llama_llama3", "mistral", "qwen3_tied", "gemma3", "mixtral"])
def test_same_values_from_blocks(name: str, mix: str, tmp_path: Path) -> None:
    """A directory made of blocks becomes a GGUF of the values that gguf-py decodes them to."""
    through_gguf(name, tmp_path, f"gguf-{mix}")
    again(name, tmp_path)
    blocks, values = (
        {t.name: t for t in gguf.GGUFReader(tmp_path / file).tensors}
        for file in ("there.gguf", "again.gguf")
    )
    assert {t.tensor_type.name for t in blocks.values()} > {"F32"}
    assert blocks.keys() == values.keys()
    for tensor, found in values.items():
        expected = gguf.quants.dequantize(blocks[tensor].data, blocks[tensor].tensor_type)
        assert found.data.tobytes() == expected.astype(np.float32).tobytes(), tensor


def test_scores_of_a_vocabulary_whose_unknown_token_is_control(tmp_path: Path) -> None:
    """As Gemma's files have it, for its tokenizer_config.json lists the token as special."""
    through_gguf("gemma3", tmp_path)
    with an.parse(tmp_path / "there.gguf") as model:
        types = list(model.metadata["tokenizer.ggml.token_type"])
        scores = list(model.metadata["tokenizer.ggml.scores"])
    unknown = types.index(2)
    types[unknown], scores[unknown] = 3, -1000.0
    changed = {
        "tokenizer.ggml.token_type": {"type": "int32", "value": types},
        "tokenizer.ggml.scores": {"type": "float32", "value": scores},
        "tokenizer.ggml.unknown_token_id": {"type": "uint32", "value": unknown},
    }
    an.convert(tmp_path / "there.gguf", tmp_path / "edited.gguf", "gguf", metadata=changed)
    an.convert(tmp_path / "edited.gguf", f"{tmp_path / 'back'}/", "f32", force=True)
    again("gemma3", tmp_path)
    with an.parse(tmp_path / "again.gguf") as model:
        assert model.metadata["tokenizer.ggml.token_type"] == types
        assert model.metadata["tokenizer.ggml.scores"] == scores


@pytest.mark.parametrize("units", [0, 2, 64])
def test_factors_are_those_of_a_scaling_or_refused(units: int, tmp_path: Path) -> None:
    """Torch's powers are off by a unit or two, which is no other scaling; more is none at all."""
    through_gguf("llama_llama3", tmp_path)
    raw = bytearray((tmp_path / "there.gguf").read_bytes())
    (factors,) = (t for t in gguf.GGUFReader(tmp_path / "there.gguf").tensors if "freqs" in t.name)
    values = factors.data.copy()
    ramp = int(np.flatnonzero((values > values.min()) & (values < values.max()))[0])
    values.view(np.int32)[ramp] += units
    start = int(factors.data_offset)
    raw[start : start + values.nbytes] = values.tobytes()
    (tmp_path / "edited.gguf").write_bytes(raw)
    if units > 2:
        with pytest.raises(an.UnsupportedError, match=r"^.*rope_freqs\.weight: these factors"):
            an.convert(tmp_path / "edited.gguf", f"{tmp_path / 'edited'}/", "f32")
        return
    an.convert(tmp_path / "edited.gguf", f"{tmp_path / 'edited'}/", "f32")
    before, after = (
        json.loads((tmp_path / folder / "config.json").read_text()) for folder in ("hf", "edited")
    )
    assert before["rope_parameters"] == after["rope_parameters"]


@pytest.mark.parametrize(
    "name", ["llama_llama3", "phi3_long", "mixtral", "deepseek2", "granitemoe", "qwen3next"]
)
def test_totals_add_up(name: str, tmp_path: Path) -> None:
    """What comes out is what went in, put together and taken apart, with what config.json says."""
    root, to = recorded_hf.remake(name, tmp_path / "hf"), tmp_path / "a.gguf"
    there = an.convert(root, to, "gguf-f32", tokenizer_pre=recorded(name).pre)
    back = an.convert(to, f"{tmp_path / 'back'}/", "f32")
    for source, report in ((root, there), (to, back)):
        stored = an.parse(source).stored
        n = report.n_in - sum(left.name in stored for left in report.dropped) + len(report.made)
        n += sum(pieces - 1 for pieces in report.taken_apart.values())
        n -= sum(pieces - 1 for pieces in report.put_together.values())
        assert n == report.n_out
    assert sorted(there.put_together.values()) == sorted(back.taken_apart.values())
    assert sorted(there.taken_apart.values()) == sorted(back.put_together.values())
    assert set(there.made) == {left.name for left in back.dropped if left.name in stored}
    assert ("made of config.json" in str(there)) == bool(there.made)
