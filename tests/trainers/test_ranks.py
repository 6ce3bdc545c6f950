"""Checkpoints of four ranks, read as one model, equal to what torch and verl make of them."""

from __future__ import annotations

import importlib.machinery
import shutil
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.placement_types import _StridedShard

import anamnesis as an
from anamnesis.base.dtypes import DTYPES
from anamnesis.base.stored import StoredTensor
from anamnesis.checkpoint.trainers.ranks import join_ranks
from anamnesis.formats.base import Container
from anamnesis.formats.torch.dtensor import Placement, Sharding
from anamnesis.sources.memory import BufferSource
from helpers.damage import open_damaged


def flat(value: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """All tensors of nested dictionaries and lists, by dotted name."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, (dict, list, tuple)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from flat(item, f"{name}.{key}" if name else str(key))


def raw(tensor: torch.Tensor) -> bytes:
    return (
        bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy()) if tensor.numel() else b""
    )


def assert_equal(model: an.Model, wanted: Mapping[str, torch.Tensor]) -> None:
    assert model.stored.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert model.stored[name].shape == tuple(tensor.shape), name
        assert model.stored[name].read() == raw(tensor), name


@pytest.mark.parametrize(("folder", "select"), [("dcp", None), ("dcp", "optim"), ("multi", None)])
def test_a_distributed_checkpoint_is_what_torch_makes_of_it(
    ranks: Path, tmp_path: Path, folder: str, select: str | None
) -> None:
    dcp_to_torch_save(ranks / folder, tmp_path / "whole.pt")
    wanted = dict(flat(torch.load(tmp_path / "whole.pt", weights_only=False)))
    if select:
        wanted = {n.removeprefix("optim."): t for n, t in wanted.items() if n.startswith("optim.")}
    else:
        wanted = {n: t for n, t in wanted.items() if not n.startswith("optim.")}
    with an.parse(ranks / folder, select=select) as model:
        assert_equal(model, wanted)
    assert {an.scan(path).verdict for path in (ranks / folder).iterdir()} == {"safe"}


def test_pieces_are_read_from_any_place(ranks: Path) -> None:
    with an.parse(ranks / "dcp") as model:
        for tensor in model.stored.values():
            whole = tensor.read()
            for begin in range(0, len(whole), 37):
                end = min(begin + 53, len(whole))
                view = bytearray(end - begin)
                tensor.source.read_into(tensor.offset + begin, memoryview(view))
                assert view == whole[begin:end], tensor.name


def test_rank_files_are_what_torch_joins(ranks: Path) -> None:
    with an.parse(ranks / "verl") as model:
        assert_equal(model, torch.load(ranks / "whole.pt"))


@pytest.mark.parametrize("dim", [0, 1])
def test_parts_of_two_values_a_byte_are_what_torch_joins(dim: int) -> None:
    whole = torch.arange(32, dtype=torch.uint8).reshape(4, 8)
    containers = []
    for rank, part in enumerate(whole.chunk(2, dim)):
        shape, source = (part.shape[0], 2 * part.shape[1]), BufferSource(raw(part), f"rank {rank}")
        stored = StoredTensor("w", DTYPES["F4"], shape, part.numel(), 0, source)
        sharded = {"w": Sharding((4, 8), (Placement(2, rank, dim),))}
        containers.append(Container("torch", "PyTorch", source, {"w": stored}, sharded=sharded))
    joined = join_ranks(containers, [], None)["w"]
    assert (joined.shape, joined.read()) == ((4, 16), raw(whole))


def test_a_distributed_writer_of_safetensors_is_read(ranks: Path) -> None:
    whole = torch.load(ranks / "whole.pt")
    with an.parse(ranks / "hf") as model:
        assert_equal(model, {name: whole[name] for name in model.stored})
        assert len(model.stored) == 4
        assert any("from 4 ranks; none of them says" in note for note in model.inspect().notes)


def test_rank_files_are_what_verl_merges(ranks: Path, tmp_path: Path) -> None:
    merger = verl_merger()
    shutil.copytree(ranks / "fsdp", tmp_path / "fsdp")
    (tmp_path / "fsdp" / "fsdp_config.json").write_text('{"world_size": 4}')
    config = types.SimpleNamespace(local_dir=str(tmp_path / "fsdp"))
    own = types.SimpleNamespace(config=config, _merge_by_placement=None)
    own._merge_by_placement = lambda *a: merger._merge_by_placement(own, *a)
    wanted = merger._load_and_merge_state_dicts(own, 4, 4, (4,), ("fsdp",))
    with an.parse(tmp_path / "fsdp") as model:
        assert_equal(model, wanted)


def verl_merger() -> Any:
    """verl's own merger, without what it asks a cluster for."""
    for name in ("ray", "codetiming", "tensordict", "hydra"):
        if importlib.util.find_spec(name) is None:
            made = MagicMock()
            made.__spec__ = importlib.machinery.ModuleSpec(name, None)
            sys.modules[name] = made
    spec = importlib.util.find_spec("verl")
    assert spec is not None
    package = types.ModuleType("verl")  # whose own start asks for all of it
    package.__path__ = list(spec.submodule_search_locations or [])
    sys.modules["verl"] = package
    from verl.model_merger.fsdp_model_merger import FSDPModelMerger

    return FSDPModelMerger


@pytest.mark.parametrize("gone", range(4))
def test_a_missing_rank_is_named(ranks: Path, tmp_path: Path, gone: int) -> None:
    shutil.copytree(ranks / "verl", tmp_path / "verl")
    (tmp_path / "verl" / f"model_world_size_4_rank_{gone}.pt").unlink()
    with pytest.raises(an.ParseError, match=f"rank {gone} is missing"):
        an.parse(tmp_path / "verl")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("model_world_size_99999999999_rank_0.pt",), "rank 1 and 99,999,999,997 others"),
        (("x-rank0.pt", "x-rank1.pt", "x-rank99999999999.pt"), "rank 2 and 99,999,999,996 others"),
        (("model_world_size_2_rank_0.pt", "model_world_size_2_rank_2.pt"), "rank 2 of only 2"),
        (("x-rank0.pt", "x-rank1.pt", "x-rank_1.pt"), "are of the same rank"),
    ],
)
def test_names_that_lie_about_ranks(tmp_path: Path, names: tuple[str, ...], message: str) -> None:
    for name in names:
        torch.save({"w": torch.zeros(2)}, tmp_path / name)
    with pytest.raises(an.ParseError, match=message):
        an.parse(tmp_path)


def test_a_split_into_many_pieces_is_refused(ranks: Path, tmp_path: Path) -> None:
    shutil.copytree(ranks / "verl", tmp_path / "verl")
    path = tmp_path / "verl" / "model_world_size_4_rank_2.pt"
    tensors = torch.load(path, weights_only=False)
    name = next(name for name, tensor in tensors.items() if isinstance(tensor, DTensor))
    tensors[name]._spec.placements = (_StridedShard(0, split_factor=1 << 40),)
    torch.save(tensors, path)
    with pytest.raises(an.LimitExceeded, match="DTENSOR_MAX_BOXES"):
        an.parse(tmp_path / "verl")


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("verl", "model_world_size_4_rank_1.pt"),
        ("hf", "shard-00001-model-00001-of-00002.safetensors"),
    ],
)
def test_damage_is_an_error_or_read(ranks: Path, tmp_path: Path, folder: str, name: str) -> None:
    shutil.copytree(ranks / folder, tmp_path / folder)
    open_damaged(tmp_path / folder, name, n_seeds=500)


def test_a_rank_of_safetensors_is_there_once(ranks: Path, tmp_path: Path) -> None:
    shutil.copytree(ranks / "hf", tmp_path / "hf")
    name = "shard-0000{}-model-00001-of-00002.safetensors"
    shutil.copy(tmp_path / "hf" / name.format(2), tmp_path / "hf" / name.format(5))
    with pytest.raises(an.ParseError, match="its pieces hold"):
        an.parse(tmp_path / "hf")


def test_one_rank_of_safetensors_alone_is_a_part(ranks: Path, tmp_path: Path) -> None:
    path = ranks / "hf/shard-00002-model-00001-of-00002.safetensors"
    with an.parse(path) as model, pytest.raises(an.UnsupportedError, match="part of rank 1; name"):
        model.convert(tmp_path / "out.safetensors")


def test_one_rank_alone_is_a_part(ranks: Path) -> None:
    with pytest.raises(an.ParseError, match=r"one rank's part .* name the folder"):
        an.parse(ranks / "verl" / "model_world_size_4_rank_1.pt")


def test_replicas_must_agree(ranks: Path, tmp_path: Path) -> None:
    shutil.copytree(ranks / "verl", tmp_path / "verl")
    path = tmp_path / "verl" / "model_world_size_4_rank_2.pt"
    tensors = torch.load(path, weights_only=False)
    tensors["plain"] = tensors["plain"] + 1
    torch.save(tensors, path)
    with (
        an.parse(tmp_path / "verl") as model,
        pytest.raises(an.ParseError, match="'plain': rank 2"),
    ):
        model.stored["plain"].read()


def test_local_tensors_of_one_rank_are_no_model(ranks: Path, tmp_path: Path) -> None:
    path = tmp_path / "model_world_size_4_rank_0.pt"
    torch.save({"w": torch.zeros(2, 3)}, path)
    with an.parse(path) as model, pytest.raises(an.UnsupportedError, match="part of rank 0 of 4"):
        model.remember(tmp_path / "out.safetensors")


def test_a_missing_file_of_pieces_is_named(ranks: Path, tmp_path: Path) -> None:
    shutil.copytree(ranks / "dcp", tmp_path / "dcp")
    (tmp_path / "dcp" / "__2_0.distcp").unlink()
    with pytest.raises(FileNotFoundError, match=r"__2_0\.distcp"):
        an.parse(tmp_path / "dcp")


def test_a_directory_that_transformers_loads(ranks: Path, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    (config / "config.json").write_text('{"model_type": "llama"}')
    (config / "tokenizer.json").write_text("{}")
    with an.parse(ranks / "fsdp", config=config) as model:
        model.convert(tmp_path / "out", max_shard_size=10_000)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"config.json", "tokenizer.json", "model.safetensors.index.json"} < names
    with an.parse(tmp_path / "out") as model, an.parse(ranks / "fsdp") as source:
        assert {n: t.read() for n, t in model.stored.items()} == {
            n: t.read() for n, t in source.stored.items()
        }
