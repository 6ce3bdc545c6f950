"""`amn plan`: what `amn convert` would write, its size, and what it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from anamnesis.cli.encoding import as_options, what_is_asked
from anamnesis.cli.encoding_options import encoded_options, needs, read_target
from anamnesis.cli.grouped import Command, option
from anamnesis.cli.options import (
    OpenModel,
    Parsed,
    described,
    json_option,
    opens_models,
    paths_argument,
    size,
    whole_number,
)
from anamnesis.cli.writing import PLANNED

if TYPE_CHECKING:
    from anamnesis.convert.ask.targets import Target
    from anamnesis.convert.plan.plan import Plan
    from anamnesis.model import Model

_COLUMNS = 80
_WIDTHS = (9, 6, 6, 9)  # of size, ratio, bits and SNR


def _targets(text: str) -> tuple[Target, ...]:
    names = [name.strip().lower() for name in text.split(",")]
    if "" in names and len(names) > 1:
        raise ValueError(f"{text!r} has a comma too many")
    return tuple(map(read_target, names))


def _target_names() -> list[str]:
    from anamnesis.convert.ask.targets import listed

    return [row.name for row in listed()]


def _bound(text: str) -> tuple[str, str]:
    from anamnesis.schemes.ggml.choose import type_named

    pattern, equals, name = text.rpartition("=")
    if not pattern or not equals:
        raise ValueError(f"write GLOB=TYPE, not {text!r}")
    return pattern, type_named(name)


def _bits_a_weight(text: str) -> float:
    try:
        bits = float(text)
    except ValueError:
        bits = 0.0
    if not bits > 0:
        raise ValueError(f"write a number above 0, such as 4.5, not {text!r}")
    return bits


_TARGETS = option(
    "Output",
    "--to",
    "to",
    quiet=["--scheme"],
    type=Parsed("target", _targets, _target_names),
    metavar="TARGET[,TARGET...]",
    help="A container, an encoding or both, as of amn convert; several are shown side by side:"
    " int4,fp8-block,nvfp4.",
    brief="One or more, as of amn convert: int4,nvfp4.",
)
_SAMPLE = (
    option(
        "Quality",
        "--sample",
        type=whole_number,
        metavar="N",
        help="Measure what encodings take on N bands of a megabyte or two, spread over the model."
        " [default: 16, of mixes of GGUF's types 0]",
        brief="Measure the loss on N bands of the model. [default: 16]",
    ),
    option(
        "Quality",
        "--full",
        is_flag=True,
        help="Measure it on all of the model.",
    ),
    option("Quality", "--no-loss", "loss", flag_value=False, default=True, help="Measure no loss."),
)


_FITTING = (
    option(
        "GGUF",
        "--target-size",
        type=size,
        metavar="SIZE",
        help="Choose a type for each weight, so that the file is at most SIZE with the least error"
        " of weights, which is not the quality of a model.",
    ),
    option(
        "GGUF",
        "--target-bpw",
        type=Parsed("bits", _bits_a_weight),
        metavar="BITS",
        help="The same, for so many bits a weight on average.",
    ),
    option(
        "GGUF",
        "--types",
        metavar="TYPE,...",
        help="What there is to choose from: q4_k, ..., or k, iq, legacy. [default: k]",
    ),
    option(
        "GGUF",
        "--least",
        type=Parsed("bound", _bound),
        multiple=True,
        metavar="GLOB=TYPE",
        help="The fewest bits that such weights may get: '*.attn_v.*=q5_k'.",
    ),
    option(
        "GGUF",
        "--most",
        type=Parsed("bound", _bound),
        multiple=True,
        metavar="GLOB=TYPE",
        help="The most bits that they may get.",
    ),
    option(
        "GGUF",
        "--save-recipe",
        type=click.Path(dir_okay=False),
        metavar="FILE.toml",
        help="Write what is chosen to a file that convert --recipe takes; else it is printed.",
    ),
    option(
        "GGUF",
        "--journal",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="Keep measured errors in a file, and go on from what it has.",
    ),
)


def _usual_sample(target: Target) -> int:
    """Return how many bands are measured if nobody says: none of mixes."""
    if target.mix is not None:
        return 0
    from anamnesis.convert.write.sample import SAMPLE  # only here, for the sake of a quick start

    return SAMPLE


def _planning(command: Any) -> Any:
    made = opens_models(json_option(command), encodes=True, writes=True)
    for add in reversed((_TARGETS, *_SAMPLE, *_FITTING, *encoded_options(writes=False), *PLANNED)):
        made = add(made)
    return made


@click.command(
    "plan",
    cls=Command,
    epilog=described(
        "amn plan model-bf16.safetensors --to fp8-block",
        "amn plan Qwen3-8B/ --to int4,fp8-block,nvfp4",
        "amn plan Qwen3-8B/ --to gguf-f16 --json",
        "amn plan model-f16.gguf --to gguf --target-bpw 4.5",
    ),
)
@paths_argument
@_planning
def command(
    paths: tuple[str, ...],
    to: tuple[Target, ...] | None,
    sample: int | None,
    full: bool,
    loss: bool,
    as_json: bool,
    open_model: OpenModel,
    target_size: int | None,
    target_bpw: float | None,
    **given: Any,
) -> None:
    """Show what convert would write, how small that is, and what it takes.

    Only headers are read, and a few megabytes to measure what encodings take.
    """
    from anamnesis.cli.batch import finish, run_batch
    from anamnesis.cli.encoding_voice import found_lines
    from anamnesis.cli.inputs import with_components

    needs(paths, "to", to or None)
    assert to is not None
    fitting = {name: given.pop(name) for name in ("types", "least", "most", "journal")}
    recipe = given.pop("save_recipe")
    if target_size is not None or target_bpw is not None:
        from anamnesis.cli.fit import run_fit

        asked = {"target_size": target_size, "target_bpw": target_bpw, **fitting, "full": full}
        asked |= {"sample": sample, "loss": loss}
        run_fit(paths, to, asked, recipe, given, open_model=open_model, as_json=as_json)
        return
    for name, value in {**fitting, "save_recipe": recipe}.items():
        if value:
            option = name.replace("_", "-")
            raise click.UsageError(f"--{option} is for --target-size and --target-bpw")

    def planned(model: Model, target: Target) -> Plan:
        own = dict(given)
        measure = loss and (full or sample or _usual_sample(target))
        _, options = what_is_asked(target, own, None)
        try:
            return model.plan(target.text, measure=measure, **options, **own)
        except ValueError as error:
            raise as_options(error) from None

    def work(path: str) -> dict[str, Any]:
        with open_model(path) as model:
            plans = {target.text: planned(model, target) for target in to}
            told = {name: plan.to_dict() for name, plan in plans.items()} if as_json else {}
            lines = _lines(plans[to[0].text], model.stored) if len(to) == 1 else _table(plans)
            if as_json and len(to) == 1:
                return told[to[0].text]
            if as_json:
                return {"plans": [{"target": name, **plan} for name, plan in told.items()]}
            for line in (*found_lines(model.inspect()), *lines):
                print(line)
            return {}

    finish(run_batch(with_components(paths), work, as_json=as_json, headings=True))


def _table(plans: dict[str, Plan]) -> Iterator[str]:
    """Yield a row for each target, in 80 columns."""
    from anamnesis.base.sizes import format_size
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
    from anamnesis.base.sizes import format_size

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
    """Yield what encodings take, as far as it was measured."""
    from anamnesis.cli.encoding_voice import loss_lines

    measured = plan.measured
    if measured is not None:
        yield from loss_lines(measured.losses, 1)
        if measured.is_sample:
            bands = f"{measured.n_bands:,} of {measured.n_bands_in_all:,} bands"
            yield f"  of a sample, {bands}; --full measures all"


def _lines(plan: Plan, stored: Any) -> Iterator[str]:
    """Yield what would be written, and what would become of everything."""
    from anamnesis.base.printable import printable
    from anamnesis.base.sizes import format_size
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
        from anamnesis.cli.mix_table import mix_lines  # only here, for the sake of a quick start

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
    """Yield what cannot be read: what is passed through, or where the conversion would stop."""
    from anamnesis.base.printable import abbreviate, printable, shortened
    from anamnesis.cli.narration import hanging

    account = plan.account
    if account.unknown:
        yield from hanging(f"{target}passes through unread: {abbreviate(account.unknown)}")
    for name, error in () if account.unknown else account.problems.items():
        yield from hanging(f"{target}stops at {shortened(name)}: {printable(error.message)}")


def _loads_lines(plan: Plan) -> Iterator[str]:
    """Yield which programs load the output, and which do not, and why."""
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
            told = in_options(f"{verdict.program}: {wrong}{verdict.why}{instead}")
            yield from hanging(told, f"{label:<13}", "             ")
    if any(verdict.outcome == "wrong" for verdict in plan.verdicts):
        yield "             it is written with --force alone"
