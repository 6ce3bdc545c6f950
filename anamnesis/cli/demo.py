"""`amn demo`: a checkpoint made, remembered and checked before your eyes."""

from __future__ import annotations

import click

from anamnesis.cli.options import described

__all__ = ["command"]


@click.command(
    "demo",
    epilog=described(
        "amn demo",
        "amn demo /tmp/demo",
    ),
)
@click.argument("directory", default=".", metavar="[DIRECTORY]")
def command(directory: str) -> None:
    """Make a small FP8 checkpoint, remember it, check it.

    It writes model-fp8.safetensors and model-bf16.safetensors, and compares every byte with what
    numpy and ml_dtypes compute. Exit code 1 if anything differs.
    """
    from anamnesis.cli.batch import finish
    from anamnesis.cli.demo_run import run_demo

    finish([] if run_demo(directory) else [directory])


if __name__ == "__main__":
    import sys

    from anamnesis.cli.app import main

    main(["demo", *sys.argv[1:]])
