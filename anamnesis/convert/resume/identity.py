"""What --resume compares: what two runs must agree in to continue each other."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from anamnesis.base.version import __version__
from anamnesis.checkpoint.open import Checkpoint
from anamnesis.convert.plan.plan import Plan


def difference(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """Return what another run depends on instead, in words; nothing if it continues this one."""
    if mine == theirs:
        return ""
    if mine["version"] != theirs.get("version"):
        return f"version {theirs.get('version')} of anamnesis, and this is {mine['version']}"
    there = {name: stamp for name, *stamp in theirs.get("sources", ())}
    for name, *stamp in mine["sources"]:
        if there.get(name) != stamp:
            return f"another {name}" if name in there else f"a model without {name}"
    return "other options, or another model"


def identity(checkpoint: Checkpoint, plan: Plan, record: str) -> dict[str, Any]:
    """Return what a run depends on; `record` is the format of what it notes of each band."""
    shards = checkpoint.shards
    if checkpoint.root is None:  # the same file by whatever path
        shards = {os.path.realpath(c.source.path or n): c for n, c in shards.items()}
    return {
        "version": __version__,
        "digest": plan.digest(),
        "bands": plan.count_jobs(),
        "record": record,
        "weights": len(list(plan.weights())),
        "surveys": len(plan.to_survey),
        "sources": [[name, *c.source.stamp()] for name, c in shards.items()],
    }
