"""`amn check`: whether a model is whole and sane."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

from anamnesis.base.printable import printable
from anamnesis.cli.exit_codes import FOUND, UNREADABLE
from anamnesis.cli.verbs import verb

if TYPE_CHECKING:
    from anamnesis.cli.verbs import OpenModel
    from anamnesis.convert.check.findings import Check, Finding

_MOST = 20  # findings of one kind that are shown


@verb(
    "check",
    "amn check Qwen3-8B/",
    "amn check model.safetensors --manifest model.hashes.json",
    "amn check model-Q4_K_M.gguf --same-codes Qwen3-8B/",
    "amn check Qwen3-8B/ --lora adapter/",
    exit_codes=["0 if all models are sound, 1 if any has problems, 2 if any cannot be read"],
    on_failure=UNREADABLE,
)
def command(
    paths: tuple[str, ...],
    manifest: str | None,
    same_codes: str | None,
    lora: tuple[tuple[str, float], ...],
    headers: bool,
    threads: int | None,
    as_json: bool | str,
    open_model: OpenModel,
) -> None:
    """Check whether a model is whole and sane.

    Values are read for NaNs, infinities, zeros, constants and sizes that no training gives; scales,
    shapes, config, index, tied heads, copies, and the hashes of files in the hub's cache.
    """
    from anamnesis.checking import check
    from anamnesis.cli.inputs import run_batch, with_components
    from anamnesis.cli.progress import metered

    found_paths = with_components(paths)
    if manifest is not None and len(found_paths) > 1:
        raise click.UsageError(f"--manifest is of one model, not of {len(found_paths)}")
    sound: list[bool] = []

    def work(path: str) -> dict[str, Any]:
        with open_model(path) as model:
            shown = nullcontext() if as_json else metered("Checking", sys.stderr)
            with shown as meter:
                found = check(
                    model,
                    values=not headers,
                    manifest=manifest,
                    same_codes=same_codes,
                    lora=dict(lora) or None,
                    threads=threads,
                    progress=meter,
                )
        sound.append(found.ok)
        if as_json:
            return {**found.to_dict(), "path": path}
        for line in lines(found):
            print(printable(line))
        return {}

    failures = run_batch(found_paths, work, as_json=as_json, headings=True)
    sys.stdout.flush()
    if failures or not all(sound):
        click.get_current_context().exit(UNREADABLE if failures else FOUND)


def lines(found: Check) -> Iterator[str]:
    """Yield what a terminal shows of a check."""
    from anamnesis.base.sizes import format_size

    yield from _listed("Problem", found.problems)
    yield from _listed("Note", found.notes)
    for name, how in found.done.items():
        if how.startswith("not checked") or name == "manifest":
            yield f"{name}: {how}"
    yield f"{found.outcome}, {format_size(found.n_bytes)}"


def _listed(title: str, findings: Sequence[Finding]) -> Iterator[str]:
    by_kind: dict[str, list[Finding]] = {}
    for finding in findings:
        by_kind.setdefault(finding.kind, []).append(finding)
    for kind, some in by_kind.items():
        for finding in some[:_MOST]:
            yield f"{title}: {kind}: {finding}"
        if len(some) > _MOST:
            yield f"{title}: {kind}: and {len(some) - _MOST:,} more; --json has all"
