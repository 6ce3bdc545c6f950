"""`amn demo`: small models to try things with, one of them checked before your eyes."""

from __future__ import annotations

import click

from anamnesis.cli.grouped import Command, option
from anamnesis.cli.options import described

__all__ = ["command"]


@click.command(
    "demo",
    cls=Command,
    epilog=described(
        "amn demo",
        "amn demo gguf",
        "amn demo llama /tmp/demo",
        "amn demo --list",
    ),
)
@click.argument("name", default=".", metavar="[NAME]")
@click.argument("directory", required=False, metavar="[DIRECTORY]")
@option(
    "Output",
    "--list",
    "lists",
    is_flag=True,
    help="List the demos and what they make.",
    brief="List the demos and what they make.",
)
@option(
    "Output",
    "--all",
    "makes_all",
    is_flag=True,
    help="Make the inputs of all demos.",
    brief="Make the inputs of all demos.",
)
def command(name: str, directory: str | None, *, lists: bool, makes_all: bool) -> None:
    """Make a small model to try things with.

    Without NAME it is an FP8 checkpoint, which is remembered before your eyes: every byte of
    model-bf16.safetensors is compared with what numpy and ml_dtypes compute, and the exit code is
    1 if any differs. With NAME it is what the documentation's pages speak of.
    """
    from anamnesis.cli.batch import finish
    from anamnesis.cli.demo_models import DEMOS

    if lists:
        _list()
        return
    if name in DEMOS:
        names, folder = [name], directory or "."
    elif directory is None:
        names, folder = list(DEMOS) if makes_all else [], name
    else:
        raise click.UsageError(f"there is no demo {name!r}; there are {', '.join(DEMOS)}")
    if names:
        from anamnesis.cli.demo_inputs import make_demo

        for each in names:
            make_demo(each, folder)
        return
    from anamnesis.cli.demo_run import run_demo

    finish([] if run_demo(folder) else [folder])


def _list() -> None:
    from anamnesis.cli.demo_models import DEMOS

    rows = [("", "model-fp8.safetensors", "FP8 in one file, remembered and checked")]
    rows += [(name, demo.path, demo.what) for name, demo in DEMOS.items()]
    first, second = (max(len(row[i]) for row in rows) for i in range(2))
    for name, path, what in rows:
        print(f"amn demo {name:<{first}}  {path:<{second}}  {what}")


if __name__ == "__main__":
    import sys

    from anamnesis.cli.app import main

    main(["demo", *sys.argv[1:]])
