"""Megatron's torch_dist: a checkpoint that its own code has written, kept by a tool."""

from __future__ import annotations

import json
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import anamnesis as an
from helpers.checkpoints import left_out
from helpers.dcp_handmade import Piece, described, placed, write, write_metadata

RECORDED = Path(__file__).parent / "recorded/megatron.zip"
MODELS = RECORDED.with_name("megatron_models.zip")
STATE = "chained_0.optimizer.state.exp_avg.norm"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Two ranks' files, in which all values of a tensor count up from 0."""
    with zipfile.ZipFile(RECORDED) as file:
        file.extractall(tmp_path / "iter_0000007")
    return tmp_path / "iter_0000007"


def test_tensors_are_whole_under_megatrons_names(checkpoint: Path) -> None:
    shapes = {
        "embedding.weight": ("BF16", (10, 4)),
        "decoder.fc2.weight": ("F32", (3, 8)),
        "decoder.layers.qkv.weight": ("BF16", (2, 8, 6)),
        "decoder.norm.weight": ("F32", (6,)),
    }
    with an.parse(checkpoint) as model:
        assert {n: (t.dtype.name, t.shape) for n, t in model.stored.items()} == shapes
        for tensor in model.stored.values():
            dtype = ml_dtypes.bfloat16 if tensor.dtype.name == "BF16" else np.float32
            counted = np.arange(tensor.n_elements).astype(dtype)
            assert tensor.source.read(tensor.offset, tensor.n_bytes) == counted.tobytes()


def test_what_is_no_weight_is_told(checkpoint: Path) -> None:
    extra = {f"decoder.fc2._extra_state/shard_{rank}_2" for rank in range(2)}
    with an.parse(checkpoint) as model:
        assert left_out(model).keys() == {STATE, "common.pt", *extra}
    with an.parse(checkpoint, select="chained_0") as model:
        assert list(model.stored) == [STATE.removeprefix("chained_0.")]


def test_a_tensor_that_megatron_cuts_along_a_grid_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.distcp").write_bytes(bytes(100))
    about = {name: described("float32", (4,), [((0,), (4,))]) for name in ("w", "cut")}
    where = [placed(name, (0,), "a.distcp", 0, 50) for name in about]
    recut = {"cut": {"nd_reformulated_orig_global_shape": (2, 2)}, "w": {}}
    write_metadata(tmp_path, about, where, "MCoreMetadata", mcore_data=recut)
    with an.parse(tmp_path) as model:
        assert list(model.stored) == ["w"]


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Models that Megatron-Bridge has mapped, each with its config and digests of its tensors."""
    with zipfile.ZipFile(MODELS) as file:
        file.extractall(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "qwen3_moe", "qwen3_moe_apart"])
def test_tensors_are_what_megatron_bridge_makes_of_them(models: Path, name: str) -> None:
    wanted = json.loads((models / name / "digests.json").read_text())
    with an.parse(models / name / "checkpoint", config=models / name / "config") as model:
        found = {n: [list(t.shape), sha256(t.read()).hexdigest()] for n, t in model.stored.items()}
        model.convert(models / "out", "safetensors")
    assert found == wanted
    with an.parse(models / "out") as model:
        assert {n: sha256(t.read()).hexdigest() for n, t in model.stored.items()} == {
            n: digest for n, (_, digest) in wanted.items()
        }


def test_rows_that_pad_the_vocabulary_are_told(models: Path) -> None:
    with an.parse(models / "qwen2/checkpoint", config=models / "qwen2/config") as model:
        assert left_out(model)["embedding.word_embeddings.weight from row 30 on"]


def test_without_a_map_names_stay_and_nothing_is_said_to_load_them(models: Path) -> None:
    folder = models / "qwen3/checkpoint"
    with an.parse(folder) as model:
        plain = dict.fromkeys(model.stored)
        said = " ".join(model.convert(models / "out", "safetensors").warnings)
    assert "tensor names are Megatron's" in said
    _changed(models / "qwen3", model_type="granite")
    with an.parse(folder, config=models / "qwen3/config") as model:
        assert dict.fromkeys(model.stored) == plain
        assert not any(one.outcome == "loads" for one in model.plan("safetensors").verdicts)


def _changed(model: Path, **config: Any) -> None:
    path = model / "config/config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **config}))


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("llama", {"num_hidden_layers": 3}, "not a stack of 3 layers"),
        ("qwen2", {"num_hidden_layers": 3}, "3, but 2 of 2 are there"),
        ("llama", {"vocab_size": 33}, "vocab_size is 33"),
        ("llama", {"vocab_size": "30"}, "not a positive integer"),
        ("llama", {"tie_word_embeddings": True}, "has a head of its own"),
        ("qwen2", {"tie_word_embeddings": False}, "has no head of its own"),
        ("qwen3", {"head_dim": 8}, "not split into 3 tensors"),
        ("qwen3", {"num_hidden_layers": 1 << 40}, "not a stack of"),
        ("qwen3", {"num_attention_heads": 0}, "not a positive integer"),
        ("llama", {"num_attention_heads": 5}, "5 heads do not divide into 2 groups"),
        ("qwen3_moe", {"num_local_experts": 5}, "not a stack of 5 experts"),
    ],
)
def test_a_config_of_another_model_is_refused(
    models: Path, name: str, config: dict[str, Any], message: str
) -> None:
    _changed(models / name, **config)
    with pytest.raises(an.ParseError, match=message):
        an.parse(models / name / "checkpoint", config=models / name / "config")


LAYER = "decoder.layers.0."


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        (("mlp.linear_fc2.weight", "mtp.norm"), an.UnsupportedError, "is known for 'decoder"),
        (("pre_mlp_layernorm.weight", "mlp.linear_fc1.layer_norm_weight"), an.ParseError, "become"),
        (("mlp.linear_fc1.weight",), an.ParseError, "not split into 2 tensors"),
    ],
)
def test_tensors_that_have_no_place_are_refused(
    models: Path, names: tuple[str, ...], error: type[Exception], message: str
) -> None:
    pieces = [Piece((0, 0), np.ones((3, 2), np.float32))]
    write(models / "made", {LAYER + name: ((3, 2), pieces) for name in names})
    with pytest.raises(error, match=message):
        an.parse(models / "made", config=models / "llama/config")


@pytest.mark.parametrize(("below", "select"), [("model.module", None), ("module", "model")])
def test_the_name_that_all_lie_below_is_told(models: Path, below: str, select: str | None) -> None:
    pieces = [Piece((0, 0), np.ones((3, 2), np.float32))]
    where = ".".join([*([select] if select else []), below])
    write(models / "made", {f"{where}.{LAYER}mlp.linear_fc2.weight": ((3, 2), pieces)})
    with pytest.raises(an.ParseError, match=r"select='model\.module' takes them"):
        an.parse(models / "made", config=models / "llama/config", select=select)
