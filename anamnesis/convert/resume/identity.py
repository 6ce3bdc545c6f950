"""What --resume compares: what two runs must agree in to continue each other."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from anamnesis.base.version import __version__
from anamnesis.checkpoint.open import Checkpoint
from anamnesis.convert.plan.plan import Plan


def difference(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """Return what another run depends on instead, in words; nothing if it continues this one."""
    version, sources = theirs.get("version"), theirs.get("sources", ())
    if mine["version"] != version:
        return f"version {version} of anamnesis, and this is {mine['version']}"
    changed = [source[0] for source in mine["sources"] if source not in sources]
    if changed:
        return f"another {changed[0]}"
    return "" if mine == theirs else "other options, or another model"


def identity(checkpoint: Checkpoint, plan: Plan, record: str) -> dict[str, Any]:
    """Return what a run depends on; `record` is the format of what it notes of each band."""
    shards = checkpoint.shards
    if checkpoint.root is None:  # the same file by whatever path
        shards = {
            os.path.realpath(c.source.path) if c.source.path else n: c for n, c in shards.items()
        }
    return {
        "version": __version__,
        "digest": plan.digest(),
        "bands": sum(len(weight.bands()) for weight in plan.weights()),
        "record": record,
        "weights": len(list(plan.weights())),
        "surveys": len(plan.to_survey),
        "sources": [[name, *c.source.stamp()] for name, c in shards.items()],
    }


def boot_id() -> str:
    """Return what changes when the machine is started anew."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    # Elsewhere the minute of the start. Where the clock was set since, it looks like another boot,
    # and a partial run is begun anew: slower, but right.
    return str(round((time.time() - time.monotonic()) / 60))
