"""`amn diff`: what two models have in common, and how far their values lie apart."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from anamnesis.base.printable import numbered, printable, shortened
from anamnesis.base.sizes import format_size
from anamnesis.cli.exit_codes import FOUND, UNREADABLE
from anamnesis.cli.streams import print_json
from anamnesis.cli.verbs import verb

if TYPE_CHECKING:
    from anamnesis.cli.verbs import OpenModel
    from anamnesis.convert.compare.comparison import Change, Compared, Comparison, Summary
    from anamnesis.convert.report.html_parts import Scale

_COLUMNS, _MOST_COLUMNS = 80, 120
_GAP = "  "
_LEAST = 16  # columns of a name
_WORST, _MOST_NAMES, _MOST_CHANGES = 10, 5, 20
_BLOCKS = "▁▂▃▄▅▆▇"
_EQUAL, _NONE = "█", "·"


@verb(
    "diff",
    "amn diff Qwen3-8B/ Qwen3-8B-FP8/",
    "amn diff Qwen3-8B/ model-Q4_K_M.gguf --values",
    "amn diff Qwen3-8B/ Qwen3-8B-FP8/ --values --only '*.mlp.*' --json",
    exit_codes=["0 if nothing differs, 1 if anything does, 2 if there is a problem"],
    on_failure=UNREADABLE,
)
def command(
    paths: tuple[str, ...],
    values: bool,
    threads: int | None,
    as_json: bool | str,
    open_model: OpenModel,
) -> None:
    """Compare two models, in any formats and encodings.

    Headers alone are compared: names, shapes, encodings, sizes, config and metadata. With
    --values all weights are decoded, too; then it is their values that must be the same, in
    whatever encoding and under whatever names.
    """
    from anamnesis.cli.progress import metered
    from anamnesis.comparing import compare

    if len(paths) != 2:
        raise click.UsageError(f"name two models: {len(paths)} given")
    with open_model(paths[0]) as a, open_model(paths[1]) as b:
        shown = metered("Comparing", sys.stderr) if values and not as_json else nullcontext()
        with shown as meter:
            found = compare(a, b, values=values, threads=threads, progress=meter)
    if as_json:
        print_json(found.to_dict(), as_json)
    else:
        width = min(shutil.get_terminal_size((_COLUMNS, 24)).columns, _MOST_COLUMNS)
        for line in lines(found, width):
            print(printable(line))
    click.get_current_context().exit(0 if found.same else FOUND)


def lines(found: Comparison, width: int) -> Iterator[str]:
    """Yield what a terminal shows of a comparison."""
    from anamnesis.convert.compare.figures import NOT_QUALITY

    for letter, side in (("A", found.a), ("B", found.b)):
        yield f"{letter}  {side.path}  ({side.format}, {format_size(side.n_bytes)})"
    yield found.outcome
    yield from found.notes
    yield from _kinds(found, width)
    if found.values:
        yield from _map(found, width)
    yield from _worst(found.worst, width)
    for letter, side in (("A", found.a), ("B", found.b)):
        yield from _only(letter, side, width)
    yield from _changes("config", found.config, width)
    yield from _changes("metadata", found.metadata, width)
    if found.values and found.differing:
        yield ""
        yield NOT_QUALITY
    if not found.values and found.same:
        yield "The headers are alike; --values compares what the weights hold, too."


# --- tables ---------------------------------------------------------------------------------------


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Yield two columns of words and others of figures; a first cell too long is cut in front."""
    if not rows:
        return
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    widths[0] = min(widths[0], max(_LEAST, width - sum(widths[1:]) - len(_GAP) * (len(widths) - 1)))
    yield ""
    for first, *others in (heads, *rows):
        row = zip([_tail(first, widths[0]), *others], widths, strict=True)
        padded = (cell.ljust(w) if i < 2 else cell.rjust(w) for i, (cell, w) in enumerate(row))
        yield _GAP.join(padded).rstrip()


def _tail(text: str, most: int) -> str:
    """Return a text, and of one that is too long its end: there names differ."""
    return text if len(text) <= most else f"…{text[len(text) - most + 1 :]}"


def _kinds(found: Comparison, width: int) -> Iterator[str]:
    """Yield a row for each pair of encodings, the most frequent first."""
    from anamnesis.convert.compare.figures import together

    groups: dict[tuple[str, str], list[Compared]] = {}
    for weight in found.weights:
        groups.setdefault((weight.a.kind, weight.b.kind), []).append(weight)
    in_order = sorted(groups.items(), key=lambda group: -len(group[1]))
    heads = ("A", "B", "weights")
    if not found.values:
        rows = [[*kinds, f"{len(some):,}"] for kinds, some in in_order]
        yield from _table(heads, rows, width)
        return
    rows = []
    for kinds, some in in_order:
        total = together(one.difference for one in some)
        n = sum(math.prod(weight.a.shape) for weight in some)
        share = _share(total.differing, n)
        figures = (_decibels(some, total.loss.snr_db), _largest(total.loss.largest))
        rows.append([*kinds, f"{len(some):,}", f"{n:,}", share, *figures])
    yield from _table((*heads, "values", "differ", "SNR dB", "largest"), rows, width)


def _decibels(some: Iterable[Compared], snr: float | None) -> str:
    if all(weight.state in ("same bytes", "same values") for weight in some):
        return "equal"
    return "-" if snr is None or not math.isfinite(snr) else f"{snr:.1f}"


def _share(n: int, n_all: int) -> str:
    share = n / n_all if n_all else 0.0
    return f"{share:.1%}" if not n or share >= 0.001 else f"{n:,}"


def _largest(value: float) -> str:
    return f"{value:.3g}" if value else "-"


# --- the map --------------------------------------------------------------------------------------


def _map(found: Comparison, width: int) -> Iterator[str]:
    """Yield a line for each module, with a character for each layer."""
    from anamnesis.convert.report.html_parts import DECIBELS
    from anamnesis.convert.report.layers import in_columns, map_of, worst_of

    modules, layers = map_of((one.name, one.snr_db) for one in found.weights)
    modules = {name: row for name, row in modules.items() if min(row.values()) < math.inf}
    if not modules:
        return
    most = max(map(len, modules))
    room = width - len(_GAP) * 2 - len("99.9 dB")
    label = min(most, max(room // 3, room - len(layers)))
    columns = in_columns(layers, room - label)
    yield ""
    ends = f"{layers[0]}"
    ends += f"{layers[-1]}".rjust(len(columns) - len(ends)) if len(columns) > 1 else ""
    yield f"{'SNR by layer':<{label}}{_GAP}{ends}{_GAP}worst"
    for name, row in modules.items():
        cells = "".join(_block(worst_of(row, column), DECIBELS) for column in columns)
        yield f"{_tail(name, label):<{label}}{_GAP}{cells}{_GAP}{min(row.values()):.1f} dB"
    low, high = (f"{figure:g} {DECIBELS.unit}" for figure in DECIBELS[:2])
    yield f"{_BLOCKS[0]} {low} and less … {_BLOCKS[-1]} {high} and more, {_EQUAL} equal"


def _block(figure: float | None, scale: Scale) -> str:
    if figure is None:
        return _NONE
    if figure == math.inf:
        return _EQUAL
    return _BLOCKS[scale.place(figure, len(_BLOCKS))]


# --- lists ----------------------------------------------------------------------------------------


def _worst(weights: Sequence[Compared], width: int) -> Iterator[str]:
    """Yield the weights that differ, the worst first, and notes on them."""
    rows = [
        [printable(one.name), " → ".join(dict.fromkeys((one.a.kind, one.b.kind))), *_figures(one)]
        for one in weights[:_WORST]
    ]
    heads = ("Worst", "A → B", "differ", "SNR dB", "largest", "cosine")
    yield from _table(heads, rows, width)
    if len(weights) > _WORST:
        yield f"and {len(weights) - _WORST:,} more; --json has all"
    for weight in weights[:_WORST]:
        for note in filter(None, (weight.note, _where(weight))):
            yield from _hanging(f"{shortened(weight.name)}: {note}", width)


def _figures(weight: Compared) -> list[str]:
    found = weight.difference
    if found is None:
        return [weight.state, "", "", ""]
    cosine = found.cosine
    return [
        _share(found.differing, found.loss.n),
        _decibels([weight], found.loss.snr_db),
        _largest(found.loss.largest),
        "-" if cosine is None else f"{cosine:.6f}",
    ]


def _where(weight: Compared) -> str:
    """Return shapes that differ, where the first of few values does, and what is no number."""
    found, parts = weight.difference, []
    if weight.state == "other shape":
        return " → ".join(str(list(one.shape)) for one in (weight.a, weight.b))
    if found is None:
        return ""
    if found.first is not None and found.differing <= _WORST:
        parts.append(
            f"{found.differing:,} of {found.loss.n:,} values, first at {list(found.first)}"
        )
    if found.not_finite:
        parts.append(f"{found.not_finite:,} values are infinite or NaN in one of them")
    return "; ".join(parts)


def _hanging(text: str, width: int) -> list[str]:
    from textwrap import wrap

    return wrap(text, max(width, 20), initial_indent=_GAP, subsequent_indent=_GAP * 2)


def _only(letter: str, side: Summary, width: int) -> Iterator[str]:
    lists = (
        (f"Only in {letter}", side.only),
        (f"Left out of {letter}", side.left_out),
        (f"Unreadable in {letter}", side.unread),
    )
    for title, names in lists:
        if not names:
            continue
        yield ""
        yield f"{title}: {numbered(len(names), 'tensor')}"
        for name, why in list(names.items())[:_MOST_NAMES]:
            yield from _hanging(f"{shortened(name)}{f': {why}' if why else ''}", width)
        if len(names) > _MOST_NAMES:
            yield f"{_GAP}and {len(names) - _MOST_NAMES:,} more"


def _changes(title: str, changes: Sequence[Change], width: int) -> Iterator[str]:
    if not changes:
        return
    yield ""
    yield f"{numbered(len(changes), 'difference')} of {title}:"
    room = max((width - 8) // 3, 10)
    for change in changes[:_MOST_CHANGES]:
        values = ("-" if v is None else shortened(str(v), room) for v in (change.a, change.b))
        yield f"{_GAP}{shortened(change.key)}: {' → '.join(values)}"
    if len(changes) > _MOST_CHANGES:
        yield f"{_GAP}and {len(changes) - _MOST_CHANGES:,} more; --json has all"
