"""`amn plan`: what `amn convert` would write, its size, and its loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from anamnesis.cli.encoding import what_is_asked
from anamnesis.cli.errors import as_options
from anamnesis.cli.options import needs, verb
from anamnesis.cli.places import targets_behind
from anamnesis.convert.request.options import options_of

if TYPE_CHECKING:
    from anamnesis.cli.opening import OpenModel
    from anamnesis.convert.plan.plan import Plan
    from anamnesis.convert.request.targets import Target
    from anamnesis.model import Model

_WHICH = "Name one target or more: amn plan MODEL Q4_K_M, or --to int4,fp8-block"
_COLUMNS = 80
_WIDTHS = (9, 6, 6, 9)  # of size, ratio, bits and SNR


def _usual_sample(target: Target) -> int:
    """Return how many bands are measured by default: none of mixes."""
    if target.mix is not None:
        return 0
    from anamnesis.convert.write.sample import SAMPLE

    return SAMPLE


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
    from anamnesis.cli.batch import run_each
    from anamnesis.cli.encoding_voice import found_lines

    if to is None and len(paths) > 1:
        paths, to = targets_behind(paths, options_of("plan")["to"].kind.read)
    needs(paths, "to", to or None, _WHICH)
    assert to is not None
    fitting = {name: given.pop(name) for name in options_of("plan", "fit")}
    if fitting["target_size"] is not None or fitting["target_bpw"] is not None:
        from anamnesis.cli.fit import run_fit

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
                measure = loss and (full or sample or _usual_sample(target))
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
    from anamnesis.cli.waiting import waiting

    _, options = what_is_asked(target, given, None)
    to: Any = target if target.is_directory else target.text
    try:
        with waiting("Planning"):
            return model.plan(to, measure=measure, **options)
    except ValueError as error:
        raise as_options(error) from None


def _table(plans: dict[str, Plan]) -> Iterator[str]:
    """Yield a row for each target, in 80 columns."""
    from anamnesis.base.printable import format_size
    from anamnesis.cli.errors import in_options
    from anamnesis.cli.narration import hanging

    first, *_ = plans.values()
    yield f"Input:        {_input(first)}"
    yield ""
    width = max(len(name) for name in ("target", *plans))
    yield from _row(width, "target", ("size", "ratio", "bits", "SNR"), "loaded by")
    for name, plan in plans.items():
        cells = (format_size(plan.n_bytes), _ratio(plan), _bits(plan.bits_per_weight), _snr(plan))
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
    from anamnesis.base.printable import format_size

    account = plan.account
    n = account.n_parameters
    bits = f", {_bits(8 * account.n_bytes_in / n)} bits each" if n else ""
    return f"{format_size(account.n_bytes_in)}, {n:,} values{bits}"


def _bits(bits: float | None) -> str:
    return "-" if bits is None else f"{bits:.4g}"


def _ratio(plan: Plan) -> str:
    return "-" if plan.ratio is None else f"{plan.ratio:.0%}"


def _snr(plan: Plan) -> str:
    if plan.measured is None or not plan.measured.total.squared:
        return "-"
    ratio = plan.measured.total.snr_db
    return "-" if ratio is None else f"{ratio:.1f} dB"


def _loss(plan: Plan) -> Iterator[str]:
    """Yield the loss, as far as it was measured."""
    from anamnesis.cli.encoding_voice import loss_lines

    measured = plan.measured
    if measured is not None:
        yield from loss_lines(measured.losses, 1)
        if measured.is_sample:
            bands = f"{measured.n_bands:,} of {measured.n_bands_in_all:,} bands"
            yield f"  of a sample, {bands}; --full measures all"


def _lines(plan: Plan, stored: Any) -> Iterator[str]:
    """Yield the plan of one target."""
    from anamnesis.base.printable import format_size, printable
    from anamnesis.cli.encoding_voice import outcome_lines
    from anamnesis.cli.narration import count, dropped_lines, joined_lines

    account = plan.account
    formats = Counter(file.writer.id for file in plan.files)
    files = " and ".join(count(n, f"{kind} file") for kind, n in formats.items())
    yield f"Would write: {files}, {count(plan.n_tensors, 'tensor')}, {format_size(plan.n_bytes)}"
    bits = _bits(plan.bits_per_weight)
    yield f"Input:       {_input(plan)}"
    yield f"Ratio:       {_ratio(plan)} of the input, {bits} bits each"
    yield f"Memory:      at most {format_size(plan.peak_memory)}"
    if plan.why:
        from anamnesis.cli.mix_table import mix_lines

        yield from mix_lines(plan)
    yield from _loss(plan)
    yield from _loads_lines(plan)
    encodings = plan.encodings - Counter(account.repacked.values())
    for encoding, n in encodings.items():
        yield f"  {count(n, 'weight')} as {printable(encoding)}"
    yield from joined_lines(account)
    yield from outcome_lines(account)
    yield from dropped_lines(account.dropped, stored)
    yield from _stops(plan, "")


def _stops(plan: Plan, target: str) -> Iterator[str]:
    """Yield the tensors that pass through unread, or stop the conversion."""
    from anamnesis.base.printable import abbreviate, printable, shortened
    from anamnesis.cli.narration import hanging

    account = plan.account
    if account.unknown:
        yield from hanging(f"{target}passes through unread: {abbreviate(account.unknown)}")
    for name, error in () if account.unknown else account.problems.items():
        yield from hanging(f"{target}stops at {shortened(name)}: {printable(error.message)}")


def _loads_lines(plan: Plan) -> Iterator[str]:
    """Yield the programs that load the output, and why others do not."""
    from anamnesis.cli.errors import in_options
    from anamnesis.cli.narration import hanging

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
