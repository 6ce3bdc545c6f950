"""Record a checkpoint of Megatron's that two processes write: python tools/record_megatron.py.

It needs megatron-core and torch, and no GPU. All values of a tensor count up from 0.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from megatron.core import dist_checkpointing as megatron
from megatron.core.dist_checkpointing import ShardedObject, ShardedTensor

OUT = Path(__file__).parents[1] / "tests/trainers/recorded/megatron.zip"
RANKS = 2


def counted(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """A tensor whose values count up from 0."""
    return torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)


def state(rank: int) -> dict[str, Any]:
    """What one rank saves of a model: parts, layers of a stack, replicas and others."""
    part = ShardedTensor.from_rank_offsets
    qkv = counted(2, 8, 6).chunk(RANKS, 1)
    norm = counted(6, dtype=torch.float32)
    return {
        "rows": part("embedding.weight", counted(10, 4).chunk(RANKS)[rank], (0, rank, RANKS)),
        "columns": part(
            "decoder.fc2.weight",
            counted(3, 8, dtype=torch.float32).chunk(RANKS, 1)[rank].contiguous(),
            (1, rank, RANKS),
        ),
        **{
            f"layer {i}": part(
                "decoder.layers.qkv.weight",
                qkv[rank][i].contiguous(),
                *((0, i, 2), (1, rank, RANKS)),
                prepend_axis_num=1,
            )
            for i in range(2)
        },
        "replica": part("decoder.norm.weight", norm, replica_id=rank),
        "moment": part("chained_0.optimizer.state.exp_avg.norm", norm, replica_id=rank),
        "extra": ShardedObject("decoder.fc2._extra_state", {"rank": rank}, (RANKS,), (rank,)),
        "iteration": 7,
    }


def write(rank: int, out: str) -> None:
    """Write all of one rank."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29634"}
    torch.cuda.synchronize = lambda *_: None  # which Megatron calls without asking for a GPU
    torch.cuda.current_device = lambda: "cpu"
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    megatron.save(state(rank), out)
    for name, tensor in megatron.load_plain_tensors(out).items():
        if isinstance(tensor, torch.Tensor):
            assert torch.equal(tensor, counted(*tensor.shape, dtype=tensor.dtype)), name
    dist.destroy_process_group()


if __name__ == "__main__":
    OUT.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(write, args=(folder,), nprocs=RANKS)
        with zipfile.ZipFile(OUT, "w", zipfile.ZIP_DEFLATED) as file:
            for path in sorted(Path(folder).iterdir()):
                file.write(path, path.name)
