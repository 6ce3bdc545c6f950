"""ZeRO's checkpoints, equal to what DeepSpeed's own zero_to_fp32 makes of them.

Files are laid out as the engine does, of which that is the reader.
"""

from __future__ import annotations

import contextlib
import io
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from deepspeed.runtime.zero.config import ZeroStageEnum

import anamnesis as an
from helpers.damage import open_damaged

WORLD = 3
SHAPES: dict[str, tuple[int, ...]] = {
    "emb.weight": (101, 16),
    "l0.weight": (33, 16),
    "l0.bias": (33,),
    "norm.weight": (7,),
    "head.weight": (5, 33),
    "scale": (),
}
GROUPS = (("emb.weight", "l0.weight", "head.weight"), ("l0.bias", "norm.weight", "scale"))
FROZEN = {"frozen.weight": (9, 5)}


def values() -> dict[str, torch.Tensor]:
    seed = torch.Generator().manual_seed(0)
    return {n: torch.randn(s, generator=seed) for n, s in {**SHAPES, **FROZEN}.items()}


def padded(flat: torch.Tensor, multiple: int) -> torch.Tensor:
    return torch.cat([flat, torch.zeros(-len(flat) % multiple)])


def cut(flat: torch.Tensor, rank: int) -> torch.Tensor:
    n = len(flat) // WORLD
    return flat[rank * n : (rank + 1) * n].clone()


def model_states(weights: dict[str, torch.Tensor], frozen: dict[str, torch.Tensor]) -> Any:
    return {
        "module": {"buf": torch.arange(4.0), "ids": torch.arange(3), **weights},
        "buffer_names": ["buf", "ids"],
        "param_shapes": [OrderedDict((n, torch.Size(SHAPES[n])) for n in g) for g in GROUPS],
        "frozen_param_shapes": OrderedDict((n, torch.Size(s)) for n, s in FROZEN.items()),
        "frozen_param_fragments": frozen,
        "shared_params": {"tied.weight": "head.weight"},
        "ds_version": "0.19.8",
    }


def write(folder: Path, rank: int, name: str, state: dict[str, Any]) -> None:
    torch.save(state, folder / f"{name.format(rank)}.pt")


def write_2(folder: Path, stage: int, paddings: bool) -> None:
    """Write stage 1 or 2: each group flat, padded, and cut into a part a rank."""
    weights = values()
    gaps = [[(i + 1) % 3 if paddings else 0 for i in range(len(g))] for g in GROUPS]
    for rank in range(WORLD):
        flat = []
        for group, own in zip(GROUPS, gaps, strict=True):
            parts = [
                torch.cat([weights[name].reshape(-1), torch.full((gap,), torch.nan)])
                for name, gap in zip(group, own, strict=True)
            ]
            flat.append(cut(padded(torch.cat(parts), 2 * WORLD), rank))
        state = {
            "zero_stage": ZeroStageEnum(stage),
            "partition_count": [WORLD, WORLD],
            "single_partition_of_fp32_groups": flat,
            **({"param_alignment_paddings": gaps} if paddings else {}),
        }
        name = "bf16_zero_pp_rank_{}_mp_rank_00_optim_states"
        write(folder, rank, name, {"optimizer_state_dict": state, "ds_version": "0.19.8"})
    half = {name: weights[name].to(torch.bfloat16) for name in SHAPES}
    frozen = {name: weights[name] for name in FROZEN}
    write(folder, 0, "mp_rank_00_model_states", model_states(half, frozen))


def write_3(folder: Path, sub_groups: int) -> None:
    """Write stage 3: each parameter padded and cut; a rank's cuts follow each other."""
    weights = values()
    for rank in range(WORLD):
        cuts = {n: cut(padded(weights[n].reshape(-1), WORLD), rank) for n in (*SHAPES, *FROZEN)}
        flat = torch.cat([cuts[name] for group in GROUPS for name in group])
        sizes = [len(flat) // sub_groups] * (sub_groups - 1)
        groups = list(torch.split(flat, [*sizes, len(flat) - sum(sizes)]))
        state = {
            "zero_stage": ZeroStageEnum(3),
            "partition_count": WORLD,
            "fp32_flat_groups": groups,
        }
        name = "bf16_zero_pp_rank_{}_mp_rank_00_optim_states"
        write(folder, rank, name, {"optimizer_state_dict": state, "ds_version": "0.19.8"})
        frozen = {name: cuts[name] for name in FROZEN}
        name = "zero_pp_rank_{}_mp_rank_00_model_states"
        write(folder, rank, name, model_states({}, frozen))


WRITERS: dict[str, Callable[[Path], None]] = {
    "stage 1": lambda folder: write_2(folder, 1, paddings=False),
    "stage 2": lambda folder: write_2(folder, 2, paddings=False),
    "stage 2, aligned": lambda folder: write_2(folder, 2, paddings=True),
    "stage 3": lambda folder: write_3(folder, 1),
    "stage 3, groups": lambda folder: write_3(folder, 3),
}


@pytest.fixture(params=WRITERS)
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A checkpoint of each stage."""
    (tmp_path / "zero" / "global_step1").mkdir(parents=True)
    (tmp_path / "zero" / "latest").write_text("global_step1")
    WRITERS[request.param](tmp_path / "zero" / "global_step1")
    return tmp_path / "zero"


def raw(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())


def test_weights_are_what_deepspeed_makes_of_them(checkpoint: Path) -> None:
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    with contextlib.redirect_stdout(io.StringIO()):
        wanted = get_fp32_state_dict_from_zero_checkpoint(str(checkpoint))
    with an.parse(checkpoint) as model:
        assert model.stored.keys() == wanted.keys()
        for name, tensor in wanted.items():
            assert model.stored[name].shape == tuple(tensor.shape), name
            assert model.stored[name].read() == raw(tensor), name


def test_bf16_is_rounded_once(checkpoint: Path, tmp_path: Path) -> None:
    with an.parse(checkpoint) as model:
        model.convert(tmp_path / "out", "safetensors", dtype="bf16")
    with an.parse(tmp_path / "out") as model:
        for name, tensor in values().items():
            assert model.stored[name].read() == raw(tensor.to(torch.bfloat16)), name
        assert model.stored["ids"].dtype.name == "I64"


@pytest.mark.parametrize("kind", ["optim", "model"])
def test_a_missing_file_is_said(checkpoint: Path, kind: str) -> None:
    files = sorted((checkpoint / "global_step1").glob(f"*_{kind}_states.pt"))
    files[-1].unlink()
    with pytest.raises(an.AnamnesisError, match=r"are there|has no file"):
        an.parse(checkpoint)


@pytest.mark.parametrize("kind", ["optim", "model"])
def test_a_rank_in_place_of_another_is_said(tmp_path: Path, kind: str) -> None:
    write_3(tmp_path, 1)
    path = next(tmp_path.glob(f"*zero_pp_rank_1_*_{kind}_states.pt"))
    path.rename(path.with_name(path.name.replace("rank_1", "rank_3")))
    with pytest.raises(an.ParseError, match="is where the file of rank 1 should be"):
        an.parse(tmp_path)


def test_a_lie_about_shapes_is_an_error(tmp_path: Path) -> None:
    write_3(tmp_path, 1)
    path = tmp_path / "zero_pp_rank_0_mp_rank_00_model_states.pt"
    state = torch.load(path, weights_only=False)
    state["param_shapes"][0]["l0.weight"] = torch.Size((40, 16))
    torch.save(state, path)
    with pytest.raises(an.ParseError, match="values"):
        an.parse(tmp_path)


def test_a_frozen_part_of_another_checkpoint_is_an_error(checkpoint: Path) -> None:
    *_, path = sorted((checkpoint / "global_step1").glob("*_model_states.pt"))
    state = torch.load(path, weights_only=False)
    state["frozen_param_fragments"]["frozen.weight"] = torch.zeros(99)
    torch.save(state, path)
    with pytest.raises(an.ParseError, match="45 values, but"):
        an.parse(checkpoint)


def test_a_checkpoint_without_states_of_the_model_is_an_error(tmp_path: Path) -> None:
    write_3(tmp_path, 1)
    for path in tmp_path.glob("*_model_states.pt"):
        path.unlink()
    (tmp_path / "latest").write_text("gone")
    with pytest.raises(an.ParseError, match="has no file NAME_model_states"):
        an.parse(tmp_path)


def test_damage_is_an_error_or_read(checkpoint: Path) -> None:
    for ending in ("optim_states.pt", "model_states.pt"):
        path = min(checkpoint.rglob(f"*{ending}"))
        open_damaged(checkpoint, str(path.relative_to(checkpoint)))


def test_experts_of_autoep_are_refused(tmp_path: Path) -> None:
    write_3(tmp_path, 1)
    path = tmp_path / "zero_pp_rank_0_mp_rank_00_model_states.pt"
    state = torch.load(path, weights_only=False)
    torch.save({**state, "ds_autoep_layers": [{"zero3_expert_state_format": "x"}]}, path)
    with pytest.raises(an.UnsupportedError, match="AutoEP"):
        an.parse(tmp_path)


def test_one_rank_alone_is_a_part(tmp_path: Path) -> None:
    write_3(tmp_path, 1)
    for kind in ("", "bf16_"):
        path = next(tmp_path.glob(f"{kind}zero_pp_rank_1_*"))
        with (
            an.parse(path, allow_foreign=True) as model,
            pytest.raises(an.UnsupportedError, match="part of rank 1; name the folder"),
        ):
            model.remember(tmp_path / "out.safetensors")
