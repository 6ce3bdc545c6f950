"""`amn report`: a model, or two side by side, as a page of HTML."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING

import click

from anamnesis.base.errors import OutputError
from anamnesis.cli.verbs import verb

if TYPE_CHECKING:
    from anamnesis.cli.verbs import OpenModel

_DOCTYPE = b"<!doctype html"


@verb(
    "report",
    "amn report Qwen3-8B/ -o report.html",
    "amn report Qwen3-8B/ model-Q4_K_M.gguf --values -o report.html",
)
def command(
    paths: tuple[str, ...],
    values: bool,
    page: str,
    force: bool,
    threads: int | None,
    open_model: OpenModel,
) -> None:
    """Write a page about a model, or about two side by side.

    It is one file of HTML without scripts: sizes by encoding, layers and modules, the account of
    every weight, and with --values what the numbers show.
    """
    from anamnesis.base.text_files import write_text
    from anamnesis.cli.progress import metered
    from anamnesis.reporting import report

    if len(paths) > 2:
        raise click.UsageError(f"name one model or two: {len(paths)} given")
    if page != "-":
        _check(page, force=force)
    with ExitStack() as stack:
        models = [stack.enter_context(open_model(path)) for path in paths]
        meter = stack.enter_context(metered("Reading", sys.stderr) if values else nullcontext())
        found = report(*models, values=values, threads=threads, progress=meter)
    if page == "-":
        click.echo(found.to_html(), nl=False)
    else:
        write_text(page, found.to_html(), force=force)


def _check(page: str, *, force: bool) -> None:
    """Refuse a page that cannot be written, or would replace what is none, such as a model."""
    from anamnesis.base.text_files import check_writable

    check_writable(page, force=force)
    if os.path.lexists(page):
        with open(page, "rb") as file:
            head = file.read(len(_DOCTYPE))
        if head and head.lower() != _DOCTYPE:
            raise OutputError(f"{page}: is no page of HTML; name another output")
