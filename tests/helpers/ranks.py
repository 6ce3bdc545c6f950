"""Checkpoints as torch's own code writes them, by four processes: python ranks.py FOLDER."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

WORLD = 4


def trained() -> tuple[dict[str, Any], dict[str, Any]]:
    """A model that FSDP2 shards, with its optimizer, after one step."""
    mesh = init_device_mesh("cpu", (WORLD,), mesh_dim_names=("fsdp",))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(101, 48), nn.Linear(48, 130), nn.Linear(130, 7, bias=False))
    model = model.to(torch.bfloat16)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(torch.zeros(2, 3, dtype=torch.long)).float().pow(2).mean().backward()
    optimizer.step()
    weights, states = get_state_dict(model, optimizer)
    return weights, states


def of_two_ways() -> dict[str, Any]:
    """A model whose layers are cut by tensor parallelism first, and by FSDP2 then."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(14, 130), nn.Linear(130, 12))
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "1": RowwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])
    return {f"two_ways.{name}": tensor for name, tensor in model.state_dict().items()}


def many_kinds() -> dict[str, Any]:
    """Tensors of all kinds of placements and dtypes."""
    line = init_device_mesh("cpu", (WORLD,), mesh_dim_names=("fsdp",))
    square = init_device_mesh("cpu", (2, 2), mesh_dim_names=("ddp", "tp"))
    big = torch.randn(10, 12, generator=torch.Generator().manual_seed(1))
    cube = torch.randn(5, 6, 7, generator=torch.Generator().manual_seed(2)).half()
    return {
        "cols": distribute_tensor(big, line, [Shard(1)]),
        "two": distribute_tensor(big.to(torch.bfloat16), square, [Shard(0), Shard(1)]),
        "both": distribute_tensor(torch.arange(30).reshape(10, 3), square, [Shard(0), Shard(0)]),
        "cube": distribute_tensor(cube, square, [Shard(2), Shard(1)]),
        "replica": distribute_tensor(big.double(), line, [Replicate()]),
        "hybrid": distribute_tensor(big, square, [Replicate(), Shard(1)]),
        "plain": torch.arange(5),
        "scalar": torch.tensor(3.5),
        "empty": torch.zeros(0, 4),
        "half": torch.ones(3, dtype=torch.float16),
        "bool": torch.tensor([True, False]),
        "turned": big.t(),
        "f8": big.to(torch.float8_e4m3fn),
        **of_two_ways(),
    }


def whole(tensors: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors as torch joins them."""
    return {
        name: (t.full_tensor() if isinstance(t, DTensor) else t).detach().contiguous()
        for name, t in tensors.items()
    }


def write(rank: int, out: Path) -> None:
    """Write all of one rank."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": os.environ.get("RANKS_PORT", "29571")}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    weights, states = trained()
    kinds = many_kinds()
    dcp.save(
        {"model": weights, "optim": states, "extra": kinds, "step": 7, "note": "hello"},
        checkpoint_id=out / "dcp",
    )
    multi = dcp.FileSystemWriter(out / "multi", single_file_per_rank=False, thread_count=2)
    dcp.save({"model": weights}, storage_writer=multi)
    (out / "verl").mkdir(exist_ok=True)
    torch.save({**weights, **kinds}, out / "verl" / f"model_world_size_{WORLD}_rank_{rank}.pt")
    torch.save(states, out / "verl" / f"optim_world_size_{WORLD}_rank_{rank}.pt")
    (out / "fsdp").mkdir(exist_ok=True)
    torch.save(weights, out / "fsdp" / f"model_world_size_{WORLD}_rank_{rank}.pt")
    (out / "hf").mkdir(exist_ok=True)
    dist.barrier()
    shards = {name: 1 + i % 2 for i, name in enumerate(weights)}
    dcp.save(
        dict(weights),
        storage_writer=dcp.HuggingFaceStorageWriter(
            path=str(out / "hf"), save_distributed=True, fqn_to_index_mapping=shards
        ),
    )
    joined = whole({**weights, **kinds})
    if rank == 0:
        torch.save(joined, out / "whole.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(write, args=(Path(sys.argv[1]),), nprocs=WORLD)
