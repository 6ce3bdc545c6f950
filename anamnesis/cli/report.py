"""`amn report`: a model, or two side by side, as a page of HTML."""

from __future__ import annotations

import sys
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING

import click

from anamnesis.cli.options import verb

if TYPE_CHECKING:
    from anamnesis.cli.opening import OpenModel


@verb(
    "report",
    "amn report Qwen3-8B/ -o report.html",
    "amn report Qwen3-8B/ Qwen3-8B-Q4_K_M.gguf --values -o report.html",
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
    from dataclasses import replace

    from anamnesis.cli.progress import metered
    from anamnesis.convert.compare.comparison import Comparison
    from anamnesis.reporting import report

    if len(paths) > 2:
        raise click.UsageError(f"name one model or two: {len(paths)} given")
    with ExitStack() as stack:
        models = [stack.enter_context(open_model(path)) for path in paths]
        meter = stack.enter_context(metered("Reading", sys.stderr) if values else nullcontext())
        found = report(*models, values=values, threads=threads, progress=meter)
    if isinstance(found, Comparison):
        a, b = (replace(s, path=p) for s, p in zip((found.a, found.b), paths, strict=True))
        found = replace(found, a=a, b=b)
    else:
        found = replace(found, path=paths[0])
    _write(found.to_html(), page, force=force)


def _write(html: str, page: str, *, force: bool) -> None:
    if page == "-":
        click.echo(html, nl=False)
        return
    from anamnesis.base.errors import OutputError

    try:
        with open(page, "w" if force else "x", encoding="utf-8") as file:
            file.write(html)
    except FileExistsError:
        raise OutputError(f"{page}: exists", remedy="--force replaces it") from None
