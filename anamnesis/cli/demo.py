"""`amn demo`: small models to try things with, one of them checked."""

from __future__ import annotations

import os
from pathlib import Path

import click

from anamnesis.base.errors import OutputError
from anamnesis.base.nearest import did_you_mean, mistyped
from anamnesis.base.sizes import format_size
from anamnesis.cli.demo_models import DEMOS
from anamnesis.cli.verbs import verb


@verb("demo", "amn demo", "amn demo gguf", "amn demo llama /tmp/demo", "amn demo --list")
@click.argument(
    "name",
    default=".",
    metavar="[NAME]",
    shell_complete=lambda context, argument, begun: [n for n in DEMOS if n.startswith(begun)],
)
@click.argument("directory", required=False, metavar="[DIRECTORY]")
def command(name: str, directory: str | None, *, lists: bool, makes_all: bool) -> None:
    """Make a small model to try things with.

    Without NAME it is an FP8 checkpoint, which is remembered before your eyes: every byte of
    model-bf16.safetensors is compared with what numpy and ml_dtypes compute, and the exit code is
    1 if any differs. With NAME it is what the documentation's pages speak of.
    """
    from anamnesis.cli.inputs import finish
    from anamnesis.sources.urls import kind_of_url, shown_url

    if lists:
        rows = [("", "model-fp8.safetensors", "FP8 in one file, remembered and checked")]
        rows += [(each, demo.path, demo.what) for each, demo in DEMOS.items()]
        first, second = (max(len(row[i]) for row in rows) for i in range(2))
        for each, path, what in rows:
            print(f"amn demo {each:<{first}}  {path:<{second}}  {what}")
        return
    name = _by_input(name)
    if name in DEMOS:
        names, folder = [name], directory or "."
    elif directory is None:
        names, folder = list(DEMOS) if makes_all else [], name
    else:
        raise _no_such(name)
    if kind_of_url(folder) is not None:
        raise OutputError(f"{shown_url(folder)}: is an address; a demo is made in a folder here")
    if names:
        for each in names:
            make_demo(each, folder)
        return
    from anamnesis.cli.demo_run import run_demo

    finish([] if run_demo(folder) else [folder])


def _by_input(name: str) -> str:
    """Return the demo that makes this input; else the name itself, if it may be a folder's.

    A folder may be called anything, but a lone word that is almost a demo's name, and no folder
    that is there, is a slip.
    """
    by_input = {demo.path: each for each, demo in DEMOS.items()}
    if name in by_input:
        return by_input[name]
    is_folder = os.path.basename(name) != name or os.path.lexists(name)
    if name not in DEMOS and not is_folder and mistyped(name, [*DEMOS, *by_input]):
        raise _no_such(name)
    return name


def _no_such(name: str) -> click.UsageError:
    like = did_you_mean(name, [*DEMOS, *(demo.path for demo in DEMOS.values())], 1)
    return click.UsageError(f"there is no demo {name!r}{like}; amn demo --list shows all")


def make_demo(name: str, directory: str) -> None:
    """Make a demo, and print what it is."""
    demo = DEMOS[name]
    folder = Path(directory)
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder}: is not a directory; name one")
    files = demo.make()
    present = [path for path in files if (folder / path).exists()]
    for path in present:
        target = folder / path
        if not target.is_file() or target.read_bytes() != files[path]:
            raise OutputError(
                f"{target}: exists and is not the demo's; name another folder, as the last word"
            )
    for path, raw in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(raw)
    size = format_size(sum(map(len, files.values())))
    made = "is there already" if len(present) == len(files) else demo.what
    shown = folder / demo.path
    print(f"{shown}{'/' if shown.is_dir() else ''}: {made} ({size})")


if __name__ == "__main__":
    import sys

    from anamnesis.cli.app import main

    main(["demo", *sys.argv[1:]])
