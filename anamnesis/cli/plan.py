"""`amn plan`: what `amn convert` would write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from anamnesis.cli.encoding import as_options, what_is_asked
from anamnesis.cli.encoding_options import encoded_options, needs, target_option
from anamnesis.cli.options import OpenModel, described, json_option, opens_models, paths_argument
from anamnesis.cli.writing import PLANNED

if TYPE_CHECKING:
    from anamnesis.convert.plan import Plan

__all__ = ["command"]

_MOST_FILES = 4


def _planning(command: Any) -> Any:
    made = opens_models(json_option(command), chooses=False)
    for option in reversed((target_option, *encoded_options(writes=False), *PLANNED)):
        made = option(made)
    return made


@click.command(
    "plan",
    epilog=described(
        "amn plan model-bf16.safetensors --to fp8-block",
        "amn plan Qwen3-8B/ --to gguf-f16 --json",
    ),
)
@paths_argument
@_planning
def command(
    paths: tuple[str, ...], to: str | None, as_json: bool, open_model: OpenModel, **given: Any
) -> None:
    """Show what convert would write; only headers are read."""
    from anamnesis.cli.batch import finish, run_batch
    from anamnesis.cli.encoding_voice import found_lines

    needs(paths, "to", to)
    _, options = what_is_asked(str(to), given, None)

    def work(path: str) -> dict[str, Any]:
        with open_model(path) as model:
            try:
                plan = model.plan(str(to), **options, **given)
            except ValueError as error:
                raise as_options(error) from None
            if as_json:
                return plan.to_dict()
            for line in (*found_lines(model.inspect()), *_lines(plan, model.stored)):
                print(line)
            return {}

    finish(run_batch(paths, work, as_json=as_json, headings=True))


def _lines(plan: Plan, stored: Any) -> Iterator[str]:
    """Yield what would be written, and what would become of everything."""
    from anamnesis.base.printable import abbreviate, printable
    from anamnesis.base.sizes import format_size
    from anamnesis.cli.encoding_voice import plain_lines, repacked_lines, taken_apart_lines
    from anamnesis.cli.narration import count, dropped_lines

    account = plan.account
    formats = Counter(file.writer.id for file in plan.files)
    files = " and ".join(count(n, f"{kind} file") for kind, n in formats.items())
    yield f"Would write: {files}, {count(plan.n_tensors, 'tensor')}, {format_size(plan.n_bytes)}"
    yield f"Memory:      at most {format_size(plan.peak_memory)}"
    encodings = plan.encodings - Counter(account.repacked.values())
    for encoding, n in encodings.items():
        yield f"  {count(n, 'weight')} as {printable(encoding)}"
    yield from repacked_lines(account.repacked, account.inexact)
    yield from taken_apart_lines(account.taken_apart)
    yield from plain_lines(account.plain)
    yield from dropped_lines(account.dropped, stored)
    if account.passed:
        yield f"  passes through unread: {abbreviate(account.passed)}"
    for name, error in () if account.passed else account.problems.items():
        yield f"  stops at {printable(name)}: {printable(error.message)}"
