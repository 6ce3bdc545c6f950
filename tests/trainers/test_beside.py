"""Folders in which a trainer's files lie beside a model, and files that only look like ranks'."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from helpers.checkpoints import left_out
from helpers.dcp_handmade import Piece, write

ONE = np.ones((2, 2), np.float32)


@pytest.mark.parametrize(
    "beside", [".metadata", "latest", "lora_rank32.bin", "x-rank0.pt", "notes-rank1.pt"]
)
def test_a_model_wins_over_what_lies_beside_it(tmp_path: Path, beside: str) -> None:
    an.save({"w": ONE}, tmp_path / "model.safetensors")
    (tmp_path / beside).write_bytes(b"something else")
    with an.parse(tmp_path) as model:
        assert list(model) == ["w"]


def test_ranks_of_adapters_are_no_ranks(tmp_path: Path) -> None:
    for rank in (32, 64):
        an.save({"w": ONE}, tmp_path / f"lora_rank{rank}.pt")
    with pytest.raises(an.ParseError, match=r"no \.safetensors file"):
        an.parse(tmp_path)


def test_a_folder_below_is_named(tmp_path: Path) -> None:
    for name in ("optimizer_0", "pytorch_model_fsdp_0"):
        write(tmp_path / name, {"model.w": ((2, 2), [Piece((0, 0), ONE)])})
    with pytest.raises(an.ParseError, match="such as pytorch_model_fsdp_0"):
        an.parse(tmp_path)


def test_what_is_no_part_of_a_checkpoint_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "dcp"
    write(folder, {"w": ((2, 2), [Piece((0, 0), ONE)])})
    others = {"__7_0.distcp", "model_world_size_1_rank_0.pt", "rng_state_0.pth"}
    for name in others:
        (folder / name).write_bytes(b"something else")
    with an.parse(folder) as model:
        assert list(model) == ["w"]
        assert others <= left_out(model).keys()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("optimizer.pt", "pytorch_model_fsdp.bin", "scheduler.pt"), "such as pytorch_model_fsdp"),
        (("global_step7/mp_rank_00_model_states.pt", "global_step7/x_optim_states.pt"), "_step7$"),
        (("__0_0.distcp", "meta.pt"), r"\.metadata is missing"),
        (("__0_0.distcp", "__0.metadata"), "save it with collectives"),
    ],
)
def test_what_is_the_model_is_named(tmp_path: Path, names: tuple[str, ...], message: str) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"something")
    with pytest.raises(an.ParseError, match=message):
        an.parse(tmp_path)


@pytest.mark.parametrize(
    "name",
    ["mp_rank_0{}/model_optim_rng.pt", "mp_rank_00_00{}/x.pt", "mp_rank_0{}_model_states.pt"],
)
def test_a_slice_of_a_model_is_no_model(tmp_path: Path, name: str) -> None:
    for rank in range(2):
        path = tmp_path / name.format(rank)
        path.parent.mkdir(exist_ok=True)
        an.save({"w": ONE}, path)
        with an.parse(path) as model:
            assert (model._checkpoint.lone_part is None) == (rank == 0)
    with an.parse(path) as model, pytest.raises(an.UnsupportedError, match="one of 2 slices"):
        model.remember(tmp_path / "out.safetensors")


NORM, SQUARE, TALL = (4,), (4, 4), (6, 4)
LAYER = {
    "input_layernorm": NORM,
    "post_attention_layernorm": NORM,
    **{f"self_attn.{part}_proj": SQUARE for part in "qkvo"},
    **{f"mlp.{part}_proj": TALL for part in ("gate", "up")},
    "mlp.down_proj": (4, 6),
}
LLAMA = {
    "model.embed_tokens.weight": TALL,
    "model.norm.weight": NORM,
    "lm_head.weight": TALL,
    **{f"model.layers.0.{name}.weight": shape for name, shape in LAYER.items()},
}
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4,
    "intermediate_size": 6,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "vocab_size": 6,
}


def llama(folder: Path, below: str = "", *, without: str = "", also: str = "ids") -> Path:
    """A checkpoint of a model of one layer, with another tensor, and the config beside it."""
    shapes = {**{n: s for n, s in LLAMA.items() if n != without}, also: (2,)}
    kinds = {name: np.int64 if name == "ids" else np.float32 for name in shapes}
    tensors = {
        f"{below}{name}": (shape, [Piece((0,) * len(shape), np.zeros(shape, kinds[name]))])
        for name, shape in shapes.items()
    }
    write(folder / "dcp", tensors)
    (folder / "config").mkdir()
    (folder / "config/config.json").write_text(json.dumps(CONFIG))
    return folder / "dcp"


@pytest.mark.parametrize(
    ("without", "below", "select", "message"),
    [
        ("model.norm.weight", "", None, r"'model\.norm\.weight' is missing"),
        ("", "model.", None, "select='model' takes"),
        ("", "state.", None, "select='state' takes"),
        ("", "model.base.", "model", r"select='model\.base' takes"),
    ],
)
def test_tensors_of_another_model_are_refused(
    tmp_path: Path, without: str, below: str, select: str | None, message: str
) -> None:
    folder = llama(tmp_path, below, without=without)
    with an.parse(folder, config=tmp_path / "config", select=select) as model:
        with pytest.raises(an.AnamnesisError, match=message):
            model.plan("bf16")
        model.plan("bf16", names="keep")


@pytest.mark.parametrize(
    ("config", "message"),
    [({"vocab_size": 7}, "vocab_size is 7"), ({"num_hidden_layers": 2}, "no tensors of layer 1")],
)
def test_a_config_of_another_model_is_refused(
    tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    folder = llama(tmp_path)
    with an.parse(folder, config=tmp_path / "config") as model:
        assert not model.convert(tmp_path / "out", "bf16").warnings
    (tmp_path / "config/config.json").write_text(json.dumps(CONFIG | config))
    with (
        an.parse(folder, config=tmp_path / "config") as model,
        pytest.raises(an.ParseError, match=message),
    ):
        model.plan("bf16")


def test_what_a_config_says_nothing_of_is_told(tmp_path: Path) -> None:
    folder = llama(tmp_path, also="model.layers.0.self_attn.q_proj.lora_A.default.weight")
    with an.parse(folder, config=tmp_path / "config") as model:
        said = " ".join(model.convert(tmp_path / "out", "bf16").warnings)
    assert "not checked against config.json: 'model.layers.0.self_attn.q_proj.lora_A" in said
