"""What `--list` shows: all targets, or how codes get into one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from anamnesis.cli.streams import print_json

if TYPE_CHECKING:
    from anamnesis.convert.request.targets import Target

_WAYS = {"moved": "moved: the same codes", "cast": "cast: other codes for the same values"}


def list_targets(to: Target | None, *, as_json: bool, kind: str | None = None) -> None:
    """Print all targets and what loads them; of one, how codes of others get there."""
    if to is not None:
        _list_ways(to, as_json=as_json)
        return
    from anamnesis.convert.request.targets import listed

    rows = [row for row in listed() if kind in (None, row.kind)]
    if as_json:
        print_json([row._asdict() for row in rows])
        return
    head = ("target" if kind is None else "encoding", "written to", "loaded by")
    marks = {"layout": " *"}
    cells = [head, *((r.name, r.format, r.loaders + marks.get(r.kind, "")) for r in rows)]
    first, second, _ = (max(map(len, column)) for column in zip(*cells, strict=True))
    for name, container, loaders in cells:
        print(f"{name:<{first}}  {container:<{second}}  {loaders}")
    print("\nFor models of linear layers; for experts and others: amn plan, docs/loading.md")
    if kind is None:
        print("* takes only weights that are in such codes already, and moves their bits")
        print("A container goes with one of the others: gguf-f16, npz-f32")
    print("--list --to TARGET shows which codes are moved, cast exactly, or re-quantised")


def _list_ways(target: Target, *, as_json: bool) -> None:
    """Print how codes of each encoding get into another one."""
    from anamnesis.cli.narration import hanging
    from anamnesis.schemes.ways import WAYS

    name = "" if target.encoding is None else target.encoding.id
    rows = next((WAYS[row] for row in _names(name) if row in WAYS), None)
    if rows is None or target.encoding is None:
        raise click.UsageError(f"{target.text} is not an encoding; --list alone shows all targets")
    if as_json:
        keys = ("source", "way", "unless")
        listed = [dict(zip(keys, (source, *way), strict=True)) for source, way in rows.items()]
        print_json(listed)
        return
    width = max(map(len, (*rows, "all others")))
    print(f"Codes of other encodings, written as {name}:\n")
    for source, (way, unless) in rows.items():
        text = _WAYS[way] + (f"; not all: {unless}" if unless else "")
        for line in hanging(text, f"{source:<{width}}  ", " " * (width + 2)):
            print(line)
    rest = "not taken" if target.encoding.codes is None else "re-quantised"
    print(f"{'all others':<{width}}  {rest}")
    print("\namn plan shows it for a model; --lossless refuses to re-quantise")


def _names(name: str) -> list[str]:
    """Return a name, and the same without its settings, one by one."""
    words = name.split("-")
    return ["-".join(words[:n]) for n in range(len(words), 0, -1)]
