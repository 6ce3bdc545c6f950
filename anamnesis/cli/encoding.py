"""What `amn forget`, `amn convert` and `amn plan` ask of the library, and say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from anamnesis.base.printable import numbered, printable, shortened
from anamnesis.cli.errors import in_options
from anamnesis.cli.narration import account_lines, hanging, parsed_lines
from anamnesis.cli.streams import print_json
from anamnesis.cli.writing import Task, asked_dtype
from anamnesis.convert.request.options import OPTIONS

if TYPE_CHECKING:
    from anamnesis.cli.output_names import Naming
    from anamnesis.convert.report.inspection import Inspection
    from anamnesis.convert.report.losses import Losses, WeightLoss
    from anamnesis.convert.report.report import Outcome, Report
    from anamnesis.convert.request.form import Form
    from anamnesis.convert.request.targets import Target
    from anamnesis.model import Model

_WAYS = {"moved": "moved: the same codes", "cast": "cast: other codes for the same values"}
_LABELS = {"forget": "Forgetting...", "convert": "Converting..."}
_DONE = {"forget": "forgotten", "convert": "converted"}
_N_WORST = 5
_COLUMNS = 80  # of a terminal; names that leave too few for the figures get lines of their own
_MOVED = "repacked as {}: the same codes, no loss"
_CAST = "cast to {}: other codes or scales, the same values, no loss"
_UNCHANGED = "unchanged, in {} already"


def what_is_asked(
    target: Target, given: dict[str, Any], out: str | None
) -> tuple[Form, dict[str, Any]]:
    """Return the output's form and the library's arguments, which are taken out of `given`."""
    from anamnesis.convert.request.form import form_of

    form = form_of(target, out, is_cut=given["max_shard_size"] is not None)
    _check_use(target, form.container, given)
    asked_dtype(target, given["dtype"])
    settings, recipe = dict(given.pop("settings")), given.pop("recipe")
    names = {row.name for row in OPTIONS if row.call in ("remember", "convert", "mix")}
    options = {name: given.pop(name) for name in names & given.keys()}
    overrides: dict[str, str] = {}
    for pattern, name in (*options["overrides"], *recipe):
        overrides.setdefault(pattern, name)
    options |= {name: dict(options[name]) for name in ("rename", "override_kv")}
    options |= {"overrides": overrides, "metadata": {**(options["metadata"] or {}), **settings}}
    return form, {name: value for name, value in options.items() if value is not None}


def _check_use(target: Target, container: str, given: dict[str, Any]) -> None:
    """Refuse options that do not apply to the output."""
    for row in OPTIONS:
        if not given.get(row.name):
            continue
        if row.only == "gguf" and container != "gguf":
            raise click.UsageError(f"{row.flag} is for GGUF files, not {container}")
        if row.only == "encoding" and target.encoding is None:
            raise click.UsageError(
                f"{row.flag} says which weights are quantised, and {target.text} quantises none"
            )
        if row.call == "mix" and target.mix is None:
            raise click.UsageError(
                f"{row.flag} is for a mix of GGUF's types, such as gguf-q4_k_m, not {target.text}"
            )


class Encode(Task):
    """Writes models as they are asked for."""

    def __init__(self, verb: str, target: Target, out: str | None, given: dict[str, Any]) -> None:
        if given["worst"] and not given["loss"]:
            raise click.UsageError("--worst shows what --no-loss does not measure")
        self.done = _DONE[verb]
        self._verb = verb
        self._target = target
        self._worst: bool = given.pop("worst")
        form, self._options = what_is_asked(target, given, out)
        self._options["strict"] = self._options["strict"] or None
        dtype = self._options.get("dtype")
        own: Any = None if target.dtype is None else target.dtype.name.lower()
        self.dtype = dtype or own or "bf16"
        self._is_asked = bool(dtype or target.dtype)
        self._options["cast_all"] = target.casts_all(dtype, self._options.get("cast_all"))
        self._is_folder = form.is_named_directory
        # The form of outputs that are not named yet.
        self._form = form._replace(is_named_directory=False, name="", is_named_file=False)

    @property
    def naming(self) -> Naming:
        from anamnesis.cli.output_names import Naming

        name = self._target.name
        word = self.dtype if name is None else name.replace("-block", "")
        if self._form.container == "gguf" and name is not None:
            word = word.removeprefix("gguf-").upper()
        return Naming(word, self._form, keeps_dtypes=False)

    def naming_of(self, model: Model) -> Naming:
        from anamnesis.cli.output_names import any_of_dtype, becomes_directory

        is_asked = self._is_folder and self._options.get("names") != "keep"
        if is_asked and becomes_directory(model, self._form):  # a final `/` asks for one
            return self.naming._replace(form=self._form._replace(is_named_directory=True))
        if self._target.encoding is not None:
            return self.naming
        weights = model.weights.values()
        keeps_blocks = self._form.container == "gguf" and not self._is_asked
        if keeps_blocks and any(w.parts[0].dtype.kind == "block" for w in weights):
            return self.naming._replace(word=None, keeps_dtypes=True, full_stem=True)
        has_dtype = any_of_dtype(weights, self.dtype, cast_all=self._options["cast_all"])
        return self.naming if has_dtype else self.naming._replace(word=None)

    def target(self, paths: tuple[str, ...], out: str | None) -> Target:
        return self._target

    def write(self, model: Model, out: Any, **progress: Any) -> Report:
        verb = model.forget if self._verb == "forget" else model.convert
        return verb(out, self._target.text, **{**self._options, **progress})

    def write_component(self, model: Model, out: Any, **progress: Any) -> Report:
        from anamnesis.pipelines import write_component

        options = {**self._options, **progress}
        return write_component(model, out, self._target.text, options, self._verb)

    def parsed(self, inspection: Inspection) -> Iterator[str]:
        return found_lines(inspection)

    def label(self, inspection: Inspection) -> str:
        return _LABELS[self._verb]

    def label_done(self, label: str, report: Report) -> str:
        n = report.n_encoded if self._verb == "forget" else report.n_out
        return f"{label} {numbered(n, 'tensor')}"

    def account(self, report: Report, stored: Collection[str]) -> Iterator[str]:
        if report.loss is not None and report.loss.weights:
            yield from loss_lines(report.loss, _N_WORST if self._worst else 1)
        if report.edited:
            yield f"Adapters added to {numbered(len(report.edited), 'weight')}"
        if self._options["verify"]:
            yield "Verified: read back, and equal to a second encoding"
        same_as = self._options.get("expect_same")
        if same_as is not None:
            yield f"Same as {printable(same_as)}: every tensor, byte for byte"
        yield from account_lines(report, stored)
        for encoding, n in report.encodings.items():
            yield f"  encoded {numbered(n, 'weight')} as {printable(encoding)}"
        yield from outcome_lines(report)


def list_targets(to: Target | None, *, as_json: bool, kind: str | None = None) -> None:
    """Print all targets and what loads them; of one, how codes of others get there."""
    if to is not None:
        _list_ways(to, as_json=as_json)
        return
    from anamnesis.convert.request.targets import listed

    rows = [row for row in listed() if kind in (None, row.kind)]
    if as_json:
        print_json([row._asdict() for row in rows])
        return
    head = ("target" if kind is None else "encoding", "written to", "loaded by")
    marks = {"layout": " *"}
    cells = [head, *((r.name, r.format, r.loaders + marks.get(r.kind, "")) for r in rows)]
    first, second, _ = (max(map(len, column)) for column in zip(*cells, strict=True))
    for name, container, loaders in cells:
        print(f"{name:<{first}}  {container:<{second}}  {loaders}")
    print("\nFor models of linear layers; for experts and others: amn plan, docs/loading.md")
    if kind is None:
        print("* takes only weights that are in such codes already, and moves their bits")
        print("A container goes with one of the others: gguf-f16, npz-f32")
    print("--list --to TARGET shows which codes are moved, cast exactly, or re-quantised")


def _list_ways(target: Target, *, as_json: bool) -> None:
    """Print how codes of each encoding get into another one."""
    from anamnesis.schemes.ways import WAYS

    name = "" if target.encoding is None else target.encoding.id
    words = name.split("-")  # settings stand behind a name
    names = ("-".join(words[:n]) for n in range(len(words), 0, -1))
    rows = next((WAYS[row] for row in names if row in WAYS), None)
    if rows is None or target.encoding is None:
        raise click.UsageError(f"{target.text} is not an encoding; --list alone shows all targets")
    if as_json:
        keys = ("source", "way", "unless")
        listed = [dict(zip(keys, (source, *way), strict=True)) for source, way in rows.items()]
        print_json(listed)
        return
    width = max(map(len, (*rows, "all others")))
    print(f"Codes of other encodings, written as {name}:\n")
    for source, (way, unless) in rows.items():
        text = _WAYS[way] + (f"; not all: {unless}" if unless else "")
        for line in hanging(text, f"{source:<{width}}  ", " " * (width + 2)):
            print(line)
    rest = "not taken" if target.encoding.codes is None else "re-quantised"
    print(f"{'all others':<{width}}  {rest}")
    print("\namn plan shows it for a model; --lossless refuses to re-quantise")


def found_lines(inspection: Inspection) -> Iterator[str]:
    """Yield what was found; of a model that is not quantised, its dtypes."""
    dtypes = " and ".join(map(printable, inspection.passthrough)) or "none"
    return parsed_lines(inspection, dtypes, width=len("Forgetting... "))


def outcome_lines(outcome: Outcome) -> Iterator[str]:
    """Yield how many weights are moved, quantised anew, left plain, cast or kept, and why."""
    own, cast = set(outcome.unchanged), set(outcome.recast)
    ways = [
        (_UNCHANGED if name in own else _CAST if name in cast else _MOVED, encoding)
        for name, encoding in outcome.repacked.items()
    ]
    for (way, encoding), n in Counter(ways).most_common():
        yield from hanging(f"{numbered(n, 'weight')} {way.format(printable(encoding))}")
    if outcome.inexact:
        n = len(outcome.inexact)
        yield f"  {n:,} of them equal in BF16 and F16; F32 may differ in its last bits"
    why = {name: f"{said} has no such codes to move" for name, said in outcome.requantised.items()}
    for reason, n in Counter({**why, **outcome.unmovable}.values()).most_common():
        yield from hanging(f"{numbered(n, 'weight')} re-quantised: {printable(reason)}")
    if why:
        yield "  the loss is against what they decode to"
    for reason, n in Counter(outcome.plain.values()).most_common():
        yield from hanging(f"left {n:,} plain: {printable(in_options(reason))}")
    for (old, new), n in Counter(outcome.cast.values()).most_common():
        yield f"  cast {numbered(n, 'tensor')} from {old} to {new}"
    if outcome.kept:
        types = ", ".join(type for type, _ in Counter(outcome.kept.values()).most_common())
        n_kept = numbered(len(outcome.kept), "weight")
        yield from hanging(f"kept {n_kept} as stored ({types}); gguf-bf16 decodes them")


def loss_lines(losses: Losses, n_worst: int) -> Iterator[str]:
    """Yield what encoding took: of all weights together, and of those that lost the most.

    `docs/command-line.md` says what Lethe distance is.
    """
    total = losses.total
    yield f"Lethe distance: {total}"
    if not total.squared:
        return
    if n_worst > 1:
        yield from _worst_lines(losses.worst(n_worst))
    elif len(losses.weights) > 1:
        ((name, loss),) = losses.worst()
        figures, shown = f"  worst weight: {_decibels(loss)}", printable(name)
        fits = len(figures) + 2 + len(shown) <= _COLUMNS
        yield from [f"{figures}, {shown}"] if fits else [figures, f"    {shown}"]


def _worst_lines(worst: Sequence[tuple[str, WeightLoss]]) -> Iterator[str]:
    """Yield the weights whose errors are largest beside their values."""
    rows = [
        (
            shortened(name),
            f"SNR {_decibels(loss)}  mean {loss.mean:.2g}  max {loss.largest:.2g}",
        )
        for name, loss in worst
    ]
    width = max(len(name) for name, _ in rows)
    fits = all(2 + width + 2 + len(figures) <= _COLUMNS for _, figures in rows)
    for name, figures in rows:
        if fits:
            yield f"  {name:<{width}}  {figures}"
        else:
            yield f"  {name}"
            yield f"    {figures}"


def _decibels(loss: WeightLoss) -> str:
    return "-" if loss.snr_db is None else f"{loss.snr_db:.1f} dB"
