"""Checkpoints of every family, in which a part is missing, misshapen, or of another dtype.

What may come of that is a model, or one of our errors.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from math import prod
from pathlib import Path

import pytest

import anamnesis as an
from anamnesis.base.dtypes import DTYPES
from helpers.handmade import Entry, safetensors_bytes

pytestmark = pytest.mark.slow

ROOT = os.environ.get("ANAMNESIS_REAL")
FILE = "model.safetensors"
CHECKPOINTS = sorted(path.parent for path in Path(ROOT, "modern").glob(f"*/{FILE}")) if ROOT else []
OTHER_DTYPES = ("U8", "I8", "F16", "F32", "I64", "F8_E4M3", "BOOL")


@pytest.mark.skipif(not ROOT, reason="ANAMNESIS_REAL names no folder of checkpoints")
def test_there_are_checkpoints() -> None:
    assert len(CHECKPOINTS) > 100


def entries(path: Path) -> tuple[dict[str, Entry], dict[str, str] | None]:
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header, data = json.loads(raw[8 : 8 + size]), raw[8 + size :]
    metadata = header.pop("__metadata__", None)
    tensors: dict[str, Entry] = {
        name: (told["dtype"], tuple(told["shape"]), data[slice(*told["data_offsets"])])
        for name, told in header.items()
    }
    return tensors, metadata


def spoiled(entry: Entry) -> Iterator[Entry | None]:
    dtype, told, raw = entry
    shape = tuple(told)
    others: list[tuple[str, tuple[int, ...]]] = [
        *((dtype, other) for other in ((), (0,), (1,), (0,) * len(shape), (1,) * len(shape))),
        *((dtype, other) for other in ((*shape, 1), (1, *shape), shape[::-1], shape[:-1])),
        *((dtype, tuple(n + more for n in shape)) for more in (1, -1) if 0 not in shape),
        *((other, shape) for other in OTHER_DTYPES),
    ]
    for kind, dims in others:
        n_bytes = DTYPES[kind].n_bytes(prod(dims))
        yield kind, dims, (raw * (n_bytes // max(len(raw), 1) + 1))[:n_bytes].ljust(n_bytes, b"\0")
    yield None


@pytest.mark.sampled(6)
@pytest.mark.parametrize("checkpoint", CHECKPOINTS, ids=lambda path: path.name)
def test_nothing_but_our_errors_comes_out(checkpoint: Path, tmp_path: Path) -> None:
    tensors, metadata = entries(checkpoint / FILE)
    for config in checkpoint.glob("*.json"):
        (tmp_path / config.name).write_bytes(config.read_bytes())
    one_of_a_kind = {name.rpartition(".")[2]: name for name in tensors}
    for name in one_of_a_kind.values():
        for other in spoiled(tensors[name]) if tensors[name][0] in DTYPES else ():
            changed = {k: v for k, v in {**tensors, name: other}.items() if v is not None}
            (tmp_path / FILE).write_bytes(safetensors_bytes(changed, metadata))
            with suppress(an.AnamnesisError), an.parse(tmp_path) as model:
                model.inspect()
                model.remember(lambda *_: None)
