"""Megatron's torch_dist: a checkpoint that its own code has written, kept by a tool."""

from __future__ import annotations

import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import anamnesis as an
from helpers.checkpoints import left_out
from helpers.dcp_handmade import described, placed, write_metadata

RECORDED = Path(__file__).parent / "recorded/megatron.zip"
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
