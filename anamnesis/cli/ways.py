"""What `--list --to TARGET` shows: what becomes of codes that are there already."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from anamnesis.cli.narration import hanging

if TYPE_CHECKING:
    from anamnesis.convert.ask.targets import Target

_WAYS = {"moved": "moved: the same codes", "cast": "cast: other codes for the same values"}


def list_ways(target: Target, *, as_json: bool) -> None:
    """Print what codes of each encoding become in one."""
    from anamnesis.schemes.ways import WAYS  # only here, for the sake of a quick start

    name = "" if target.encoding is None else target.encoding.id
    rows = next((WAYS[row] for row in _names(name) if row in WAYS), None)
    if rows is None or target.encoding is None:
        raise click.UsageError(
            f"{target.text} is no encoding; --list alone shows what can be written"
        )
    if as_json:
        keys = ("source", "way", "unless")
        listed = [dict(zip(keys, (source, *way), strict=True)) for source, way in rows.items()]
        print(json.dumps(listed, indent=2))
        return
    width = max(map(len, (*rows, "all others")))
    print(f"What becomes of codes that are to be {name}:\n")
    for source, (way, unless) in rows.items():
        told = _WAYS[way] + (f"; not all: {unless}" if unless else "")
        for line in hanging(told, f"{source:<{width}}  ", " " * (width + 2)):
            print(line)
    rest = "not taken" if target.encoding.codes is None else "re-quantised"
    print(f"{'all others':<{width}}  {rest}")
    print("\namn plan says it of a model; --lossless refuses to re-quantise")


def _names(name: str) -> list[str]:
    """Return a name, and what it is called without its settings, one after another."""
    words = name.split("-")
    return ["-".join(words[:n]) for n in range(len(words), 0, -1)]
