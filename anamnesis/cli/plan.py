"""`amn plan`: what `amn convert` would write, or which types fit a size."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from math import prod
from typing import TYPE_CHECKING, Any

import click

from anamnesis.base.errors import OutputError
from anamnesis.base.printable import abbreviate, numbered, printable, shortened
from anamnesis.base.sizes import format_size
from anamnesis.base.text_files import check_writable, write_text
from anamnesis.cli.encoding import found_lines, loss_lines, outcome_lines, what_is_asked
from anamnesis.cli.errors import as_options, in_options
from anamnesis.cli.inputs import run_each
from anamnesis.cli.narration import dropped_lines, hanging, joined_lines
from anamnesis.cli.places import targets_behind
from anamnesis.cli.progress import waiting
from anamnesis.cli.verbs import needs, verb
from anamnesis.convert.request.kinds import read_target
from anamnesis.convert.request.options import options_of

if TYPE_CHECKING:
    from anamnesis.cli.verbs import OpenModel
    from anamnesis.convert.fit.fit import Fit
    from anamnesis.convert.plan.plan import Plan
    from anamnesis.convert.request.targets import Target
    from anamnesis.model import Model

_WHICH = "Name one target or more: amn plan MODEL Q4_K_M, or --to int4,fp8-block"
_COLUMNS = 80
_WIDTHS = (9, 6, 6, 9)  # of size, ratio, bits and SNR
_FIGURES = "{:<7}  {:>8}  {:>6}"  # type, size and bits
_FEWEST = 20  # characters of a name that is cut


@verb(
    "plan",
    "amn plan model-bf16.safetensors --to fp8-block",
    "amn plan Qwen3-8B/ --to int4,fp8-block,nvfp4",
    "amn plan Qwen3-8B/ --to gguf-f16 --json",
    "amn plan model-f16.gguf --to gguf --target-bpw 4.5",
)
def command(
    paths: tuple[str, ...],
    to: tuple[Target, ...] | None,
    sample: int | None,
    full: bool,
    loss: bool,
    as_json: bool,
    open_model: OpenModel,
    save_recipe: str | None,
    **given: Any,
) -> None:
    """Show what convert would write: its size, its loss, and what loads it.

    Only headers are read, and a few megabytes to measure the loss.
    """
    if to is None and len(paths) > 1:
        paths, to = targets_behind(paths, options_of("plan")["to"].kind.read)
    needs(paths, "to", to or None, _WHICH)
    assert to is not None
    fitting = {name: given.pop(name) for name in options_of("plan", "fit")}
    if fitting["target_size"] is not None or fitting["target_bpw"] is not None:
        asked = fitting | {"full": full, "sample": sample, "loss": loss}
        run_fit(paths, to, asked, save_recipe, given, open_model=open_model, as_json=as_json)
        return
    for name, value in {**fitting, "save_recipe": save_recipe}.items():
        if value:
            flag = options_of("plan")[name].flag
            raise click.UsageError(f"{flag} is for --target-size and --target-bpw")

    def work(path: str) -> dict[str, Any]:
        with open_model(path) as model:
            plans = {}
            for target in to:
                measure = loss and (full or sample or 0)
                if loss and not measure and target.mix is None:  # of mixes nothing, by default
                    from anamnesis.convert.write.sample import SAMPLE

                    measure = SAMPLE
                plans[target.text] = _planned(model, target, measure, dict(given))
            found = {name: plan.to_dict() for name, plan in plans.items()} if as_json else {}
            lines = _lines(plans[to[0].text], model.stored) if len(to) == 1 else _table(plans)
            if as_json and len(to) == 1:
                return found[to[0].text]
            if as_json:
                return {"plans": [{"target": name, **plan} for name, plan in found.items()]}
            for line in (*found_lines(model.inspect()), *lines):
                print(line)
            return {}

    run_each(paths, work, as_json=as_json)


def _planned(model: Model, target: Target, measure: int, given: dict[str, Any]) -> Plan:
    _, options = what_is_asked(target, given, None)
    to: Any = target if target.is_directory else target.text
    try:
        with waiting("Planning"):
            return model.plan(to, measure=measure, **options)
    except ValueError as error:
        raise as_options(error) from None


def _table(plans: dict[str, Plan]) -> Iterator[str]:
    """Yield a row for each target, in 80 columns."""
    first, *_ = plans.values()
    yield f"Input:        {_input(first)}"
    yield ""
    width = max(len(name) for name in ("target", *plans))
    yield from _row(width, "target", ("size", "ratio", "bits", "SNR"), "loaded by")
    for name, plan in plans.items():
        total = None if plan.measured is None else plan.measured.total
        snr = total.snr_db if total is not None and total.squared else None
        decibels = "-" if snr is None else f"{snr:.1f} dB"
        cells = (format_size(plan.n_bytes), _ratio(plan), _bits(plan.bits_per_weight), decibels)
        yield from _row(width, name, cells, _loaded_by(plan))
    for name, plan in plans.items():
        for warning in plan.warnings:
            yield from hanging(in_options(f"{name}: {warning}"))
        yield from _stops(plan, f"{name} ")


def _loaded_by(plan: Plan) -> str:
    """Return the programs that load the output."""
    loading = (verdict.program for verdict in plan.verdicts if verdict.outcome == "loads")
    return ", ".join(loading) or "-"


def _row(width: int, name: str, cells: tuple[str, ...], last: str) -> Iterator[str]:
    from textwrap import wrap

    figures = "".join(f"{cell:>{w}}" for cell, w in zip(cells, _WIDTHS, strict=True))
    head = f"{name:<{width}}{figures}  "
    for i, line in enumerate(wrap(last, max(20, _COLUMNS - len(head)))):
        yield f"{'' if i else head:<{len(head)}}{line}"


def _input(plan: Plan) -> str:
    account = plan.account
    n = account.n_parameters
    bits = f", {_bits(8 * account.n_bytes_in / n)} bits each" if n else ""
    return f"{format_size(account.n_bytes_in)}, {n:,} values{bits}"


def _bits(bits: float | None) -> str:
    return "-" if bits is None else f"{bits:.4g}"


def _ratio(plan: Plan) -> str:
    return "-" if plan.ratio is None else f"{plan.ratio:.0%}"


def _lines(plan: Plan, stored: Any) -> Iterator[str]:
    """Yield the plan of one target."""
    account = plan.account
    formats = Counter(file.writer.id for file in plan.files)
    files = " and ".join(numbered(n, f"{kind} file") for kind, n in formats.items())
    yield f"Would write: {files}, {numbered(plan.n_tensors, 'tensor')}, {format_size(plan.n_bytes)}"
    yield f"Input:       {_input(plan)}"
    yield f"Ratio:       {_ratio(plan)} of the input, {_bits(plan.bits_per_weight)} bits each"
    yield f"Memory:      at most {format_size(plan.peak_memory)}"
    if plan.why:
        yield from mix_lines(plan)
    measured = plan.measured
    if measured is not None:
        yield from loss_lines(measured.losses, 1)
        if measured.is_sample:
            bands = f"{measured.n_bands:,} of {measured.n_bands_in_all:,} bands"
            yield f"  of a sample, {bands}; --full measures all"
    yield from _loads_lines(plan)
    encodings = plan.encodings - Counter(account.repacked.values())
    for encoding, n in encodings.items():
        yield f"  {numbered(n, 'weight')} as {printable(encoding)}"
    yield from joined_lines(account)
    yield from outcome_lines(account)
    yield from dropped_lines(account.dropped, stored)
    yield from _stops(plan, "")


def _stops(plan: Plan, target: str) -> Iterator[str]:
    """Yield the tensors that pass through unread, or stop the conversion."""
    account = plan.account
    if account.unknown:
        yield from hanging(f"{target}passes through unread: {abbreviate(account.unknown)}")
    for name, error in () if account.unknown else account.problems.items():
        yield from hanging(f"{target}stops at {shortened(name)}: {printable(error.message)}")


def _loads_lines(plan: Plan) -> Iterator[str]:
    """Yield the programs that load the output, and why others do not."""
    loading = _loaded_by(plan)
    if loading != "-":
        yield from hanging(loading, "Loads in:    ", "             ")
    for verdict in plan.verdicts:
        if verdict.outcome != "loads":
            label = "Otherwise:" if verdict.outcome == "otherwise" else "Not in:"
            wrong = "loads it wrong, without an error: " if verdict.outcome == "wrong" else ""
            instead = f"; {verdict.instead}" if verdict.instead else ""
            text = in_options(f"{verdict.program}: {wrong}{verdict.why}{instead}")
            yield from hanging(text, f"{label:<13}", "             ")
    if any(verdict.outcome == "wrong" for verdict in plan.verdicts):
        yield "             it is written with --force alone"


def run_fit(
    paths: tuple[str, ...],
    to: tuple[Target, ...],
    asked: dict[str, Any],
    recipe: str | None,
    given: dict[str, Any],
    *,
    open_model: OpenModel,
    as_json: bool,
) -> None:
    """Choose types, show them, and write or print the recipe."""
    _check(to, asked, recipe)
    types = [word.strip() for word in (asked["types"] or "k").split(",")]
    asked |= {"types": types, "least": dict(asked["least"]), "most": dict(asked["most"])}
    _, options = what_is_asked(read_target("gguf-q8_0"), given, None)  # as of any type of blocks

    def work(path: str) -> dict[str, Any]:
        with open_model(path) as model:
            try:
                with waiting("Measuring"):
                    found = model.fit(**asked, **options)
            except ValueError as error:
                raise as_options(error) from None
        text = found.recipe()
        if recipe is not None:
            write_text(recipe, text)
        if as_json:
            figures = {"error": found.error, "types": found.types, "errors": found.errors}
            return {**found.plan.to_dict(), **figures, "recipe": text}
        for line in _fit_lines(found):
            print(line)
        print(f"\n{text.rstrip()}" if recipe is None else f"Recipe:      {recipe}")
        return {}

    run_each(paths, work, as_json=as_json)


def _check(to: tuple[Target, ...], asked: dict[str, Any], recipe: str | None) -> None:
    """Refuse options that do not go together; take out those that only say so."""
    if [target.text for target in to] != ["gguf"]:
        raise click.UsageError(
            "--target-size and --target-bpw choose types by themselves: --to gguf"
        )
    if (asked["target_size"] is None) == (asked["target_bpw"] is None):
        raise click.UsageError("give one of --target-size and --target-bpw")
    if asked.pop("sample") is not None or not asked.pop("loss"):
        raise click.UsageError(
            "--target-size and --target-bpw measure some values of each weight, or all with --full"
        )
    if recipe is not None:
        if os.path.lexists(recipe):
            raise OutputError(f"{recipe}: exists already; name another file")
        check_writable(recipe)


def _fit_lines(found: Fit) -> Iterator[str]:
    """Yield the chosen types, and what they cost."""
    plan = found.plan
    yield from mix_lines(plan, found.types)
    counts = Counter(found.types.values())
    yield f"Types:       {', '.join(f'{n} {type}' for type, n in counts.most_common())}"
    yield f"Would write: {format_size(plan.n_bytes)}, {plan.bits_per_weight:.4g} bits a weight"
    part = " of a sample" if found.is_sample else ""
    yield f"Error:       {found.error:.5g}, the sum of squared errors{part};"
    yield "             the error of weights is not the quality of a model"


def mix_lines(plan: Plan, chosen: Container[str] = ()) -> Iterator[str]:
    """Yield a row for each tensor: its name, type and size, and what it is made of.

    A terminal that is too narrow shows the latter of none, and then names that are cut.
    """
    rows = list(_rows(plan, chosen))
    heads = _FIGURES.format("type", "size", "bits")
    head = "tensor", heads, "made of" if plan.names else "", ""
    name, of = _longest(row[0] for row in rows), _longest(row[2] for row in (head, *rows))
    if sys.stdout.isatty():
        room = shutil.get_terminal_size().columns - 1
        room -= len(heads) + _longest(why for *_, why in rows) + 6
        of = of if name + of + 2 <= room else 0
        name = min(name, max(room, _FEWEST))
    yield ""
    for tensor, figures, made_of, why in (head, *rows):
        made_of = f"{printable(made_of):<{of}}  " if of else ""
        cut = tensor if len(tensor) <= name else f"{tensor[: name - 1]}…"
        yield f"  {printable(cut):<{name}}  {figures}  {made_of}{why}".rstrip()
    yield ""


def _longest(texts: Iterable[str]) -> int:
    return max(map(len, texts), default=0)


def _rows(plan: Plan, chosen: Container[str]) -> Iterator[tuple[str, str, str, str]]:
    from anamnesis.schemes.families.ggml.choose import OWN

    for made in plan.weights():
        name = made.weight.name
        why = plan.why.get(name, "")
        why = "" if why == OWN or name in chosen else why
        for part in made.parts:
            bits = 8 * part.n_bytes / max(prod(part.shape), 1)
            figures = _FIGURES.format(part.dtype.name, format_size(part.n_bytes), f"{bits:.4g}")
            made_of = plan.names.get(name)
            yield part.name, figures, abbreviate(made_of, 1) if made_of else "", why
