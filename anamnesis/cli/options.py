"""Options that several commands share, and how an input is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import click

from anamnesis.cli.grouped import option

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from anamnesis.base.limits import ParseLimits
    from anamnesis.checkpoint.pipelines import Pipeline
    from anamnesis.model import Model

    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # generic only since click 8.2

_Command: TypeAlias = Callable[..., None]


_EXIT_CODES = (
    "0 if all went well, 1 if anything failed,",
    "2 for wrong usage, 130 after Ctrl-C",
)


def described(*examples: str, exit_codes: Sequence[str] = _EXIT_CODES) -> str:
    """Return what stands below a command's options: examples and exit codes."""
    sections = {"Examples": examples, "Exit codes": exit_codes}
    return "\n\n".join(
        "\n".join(["\b", f"{title}:", *(f"  {line}" for line in lines)])
        for title, lines in sections.items()
    )


class Parsed(_ParamType):
    """An option whose text a function turns into a value, or refuses with ValueError."""

    def __init__(
        self,
        name: str,
        parse: Callable[[str], Any],
        values: Sequence[str] | Callable[[], Iterable[str]] = (),
    ) -> None:
        self.name = name
        self._parse = parse
        self._values = values

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        values = self._values() if callable(self._values) else self._values
        before, comma, last = incomplete.rpartition(",")
        found = [value for value in values if value.startswith(last)]
        return [CompletionItem(f"{before}{comma}{value}") for value in found]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(f"{error}{_what_lists_all(error)}", param, ctx)


def _what_lists_all(error: ValueError) -> str:
    from anamnesis.base.nearest import UnknownWord  # only here, for the sake of a quick start

    return "; amn convert --list has all" if isinstance(error, UnknownWord) else ""


def _dtype(text: str) -> str:
    """Return the short name of an output dtype, also for the names that other tools have for it."""
    from anamnesis.base.dtypes import OUTPUT_DTYPES
    from anamnesis.convert.ask.spellings import spelt

    name = spelt(text, OUTPUT_DTYPES)
    if name not in OUTPUT_DTYPES:
        raise ValueError(f"{text!r} is none of {', '.join(OUTPUT_DTYPES)}")
    return name


def _void(text: str) -> str:
    from anamnesis.base.dtypes import stored_dtype

    return stored_dtype(text).name


def _size(text: str) -> int:
    from anamnesis.base.sizes import parse_size

    return parse_size(text)


def _block(text: str) -> tuple[int, int]:
    sides = text.lower().split("x")
    if len(sides) != 2 or not all(
        s.isdecimal() and 0 < int(s) < 2**31 for s in sides if len(s) < 11
    ):
        raise ValueError(f"{text!r} is not rows x columns, like 128x128")
    return int(sides[0]), int(sides[1])


def _whole_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:10]) < 2**31):
        raise ValueError(f"{text!r} must be a whole number, 1 or more")
    return int(text)


size = Parsed("size", _size)
whole_number = Parsed("number", _whole_number)

# click.Path only so that shells complete names of files.
paths_argument = click.argument(
    "paths", metavar="PATH...", nargs=-1, required=True, type=click.Path()
)
recursive_option = option(
    "Input",
    "-r",
    "--recursive",
    is_flag=True,
    help="Take all models in directories and their subdirectories.",
    brief="Take all models below directories.",
)
dtype = Parsed("dtype", _dtype, ("bf16", "f16", "f32"))
to_option = option(
    "Output",
    "--to",
    "dtype",
    type=dtype,
    metavar="bf16|f16|f32",
    help="Dtype of dequantised weights. [default: bf16]",
    brief="Dtype of dequantised weights.",
)
_JSON = option(
    "Run",
    "--json",
    "as_json",
    flag_value="json",
    help="Write JSON to stdout; NaN and infinities are strings.",
    brief="Write JSON.",
)
_JSON_LINES = option(
    "Run",
    "--jsonl",
    "as_json",
    flag_value="lines",
    help="Write it as a line for each input, as soon as that is done.",
)


def json_option(command: _Command) -> _Command:
    """Add the options that write JSON; the command gets `as_json`, which is true of both."""
    made: _Command = _JSON(_JSON_LINES(command))
    return made


def _ratio(text: str) -> float:
    try:
        ratio = float(text)
    except ValueError:
        ratio = 0.0
    if not ratio >= 1:  # NaN is not, either
        raise ValueError(f"{text!r} must be a number, 1 or more")
    return ratio


# The fields of `ParseLimits`, and their options.
LIMITS = {
    "max_single_alloc": option(
        "Limits",
        "--max-alloc",
        "max_single_alloc",
        type=size,
        metavar="SIZE",
        help="Limit each allocation that a file asks for: 500MB, ...",
    ),
    "max_total_bytes": option(
        "Limits",
        "--max-bytes",
        "max_total_bytes",
        type=size,
        metavar="SIZE",
        help="Limit all allocations of parsing together.",
    ),
    "max_item_count": option(
        "Limits",
        "--max-items",
        "max_item_count",
        type=whole_number,
        metavar="N",
        help="Limit tensors, metadata entries and array items together.",
    ),
    "max_decompression_ratio": option(
        "Limits",
        "--max-ratio",
        "max_decompression_ratio",
        type=Parsed("ratio", _ratio),
        metavar="X",
        help="Limit how many times larger an archive may get when it is unpacked.",
    ),
}


def _untrusted(*, usual: bool) -> Callable[..., Any]:
    return option(
        "Limits",
        "--untrusted",
        is_flag=True,
        help="Set all limits for files that you do not trust: 500MB at once, 1GB in all,"
        " 2,000,000 items, a ratio of 100.",
        brief="Set limits for files that you do not trust." if usual else None,
    )


def takes_limits(command: _Command, *, usual: bool = True) -> _Command:
    """Add the options that limit what an input may cost; the command gets them as `limits`.

    Where they are usual, one of them is among those that -h shows.
    """

    @wraps(command)
    def run(*, untrusted: bool, **given: Any) -> None:
        limits = {name: given.pop(name) for name in LIMITS}
        command(limits=_limits(untrusted, limits), **given)

    made: _Command = run
    for add in (*reversed(LIMITS.values()), _untrusted(usual=usual)):
        made = add(made)
    return made


def _limits(untrusted: bool, given: dict[str, Any]) -> ParseLimits | None:
    set_ = {name: value for name, value in given.items() if value is not None}
    if not (untrusted or set_):
        return None
    from dataclasses import replace

    from anamnesis.base.limits import ParseLimits

    return replace(ParseLimits.untrusted() if untrusted else ParseLimits(), **set_)


# What `anamnesis.parse` takes, as options of the same names.
_OPENING = {
    "select": option(
        "Input",
        "--select",
        metavar="PREFIX",
        help="Take only tensors whose names start with PREFIX (model_state, ...), and strip it.",
    ),
    "variant": option(
        "Input",
        "--variant",
        metavar="WORD",
        help="Of a directory with several copies of its weights, take model.WORD.safetensors.",
    ),
    "block_size": option(
        "Input",
        "--block-size",
        type=Parsed("block size", _block),
        metavar="RxC",
        help="Rows and columns that share a scale, if neither shapes nor config say so.",
    ),
    "conv1d": option(
        "Input",
        "--conv1d/--no-conv1d",
        default=None,
        help="Whether layers named like GPT-2's are Conv1D, if no config.json says so.",
    ),
    "layout": option(
        "Input",
        "--layout",
        type=click.Choice(["modelopt", "comfyui"]),
        help="Whose NVFP4 and MXFP8 it is, if neither shapes nor config nor markers say so.",
    ),
    "fold_pre_quant_scale": option(
        "Input",
        "--fold-pre-quant-scale",
        is_flag=True,
        help="Multiply ModelOpt's weights by the scales of their inputs (SmoothQuant, AWQ).",
    ),
    "allow_foreign": option(
        "Input",
        "--allow-foreign",
        is_flag=True,
        help="Read pickles that refer to other code; none of it runs.",
    ),
    "void_dtype": option(
        "Input",
        "--void-dtype",
        type=Parsed("dtype", _void),
        metavar="DTYPE",
        help="Dtype of NumPy arrays of raw bytes (V1, V2): F8_E4M3, ...",
    ),
}


_KEEP_NAMES = {
    "keep_names": option(
        "Input", "--keep-names", is_flag=True, help="With --select, keep the full names."
    ),
}


def _choice(*, encodes: bool, writes: bool) -> dict[str, Any]:
    """Return the options that say which weights of a model are taken.

    `--include` and `--exclude` say so as well, where they do not say what is encoded.
    """
    return {
        **_KEEP_NAMES,
        "only": option(
            "Input",
            "--only",
            quiet=[] if encodes else ["--include"],
            multiple=True,
            metavar="GLOB",
            help="Take only weights whose names match: '*.mlp.*', model.layers.0, ... Repeatable.",
            brief=None if writes else "Take only weights whose names match.",
        ),
        "drop": option(
            "Input",
            "--drop",
            quiet=[] if encodes else ["--exclude"],
            multiple=True,
            metavar="GLOB",
            help="Leave out weights whose names match. Repeatable.",
            brief="Leave out weights whose names match.",
        ),
    }


def opens_models(command: _Command, *, encodes: bool = False, writes: bool = False) -> _Command:
    """Add the options that say how an input is opened.

    The command gets them as one argument, `open_model`: a function from a path to its model.
    Where it encodes, `--include` and `--exclude` are left to it. Where it writes, what is dropped
    is in its account; else nothing is seen of it.
    """
    choosing = _choice(encodes=encodes, writes=writes)

    @wraps(command)
    def run(limits: ParseLimits | None, **given: Any) -> None:
        choice = {name: given.pop(name) for name in choosing} | {"writes": writes}
        opening = {name: given.pop(name) for name in _OPENING} | {"limits": limits}
        command(open_model=OpenModel(opening, choice, limits), **given)

    made = takes_limits(run, usual=not writes)
    first, *others = _OPENING.values()
    for add in reversed([first, *choosing.values(), *others]):
        made = add(made)
    return made


class OpenModel(NamedTuple):
    """Opens a model by its path as the options say."""

    opening: dict[str, Any]
    choice: dict[str, Any]
    limits: ParseLimits | None

    def __call__(self, path: str) -> AbstractContextManager[Model]:
        """Return the model, to be used in a `with` statement."""
        return _open(self.opening, self.choice, path)

    def of_pipeline(self, pipeline: Pipeline, model: str) -> OpenModel:
        """Return what opens a model of a pipeline: not all of them may have the variant."""
        return self._replace(opening=pipeline.opening(model, self.opening))


@contextmanager
def _open(opening: dict[str, Any], choice: dict[str, Any], path: str) -> Iterator[Model]:
    import gc

    from anamnesis.cli.errors import complain
    from anamnesis.cli.inputs import misnomer
    from anamnesis.cli.streams import is_pipe, spooled
    from anamnesis.opening import parse

    below = opening["select"] if choice["keep_names"] else None
    if below is not None:
        opening = {**opening, "select": None}
    gc.disable()  # a tenth of the time would go into walking a header that grows
    whole = parse(spooled(path) if is_pipe(path) else path, **opening)
    gc.enable()
    gc.freeze()  # it lives as long as the command: nothing for the collector to walk, even at exit
    with whole:
        model = _chosen(whole, path, below, choice)
        warning = misnomer(path, model.format_id, model.format)
        if warning:
            complain(warning, "warning")
        yield model


def _chosen(model: Model, path: str, below: str | None, choice: dict[str, Any]) -> Model:
    """Return the weights below a name that the globs take; all without either."""
    if below is None and not (choice["only"] or choice["drop"]):
        return model
    from glob import escape  # only here, for the sake of a quick start

    from anamnesis.base.patterns import unfitting

    only, drop = (_fitting(f"--{name}", choice[name], model, path) for name in ("only", "drop"))
    n = len(model.weights)
    if below is not None:
        model = _selected(model, n, [escape(below.removesuffix("."))])
    exclude = () if choice["writes"] else drop
    if only or exclude:
        model = _selected(model, n, only, exclude)
    if drop and choice["writes"]:
        gone = unfitting(drop, list(model))  # with what was not taken
        left = [glob for glob in drop if glob not in gone]
        model = model.select(drop=left) if left else model
    return model


def _selected(model: Model, n: int, only: Sequence[str], exclude: Sequence[str] = ()) -> Model:
    from anamnesis.base.errors import UnsupportedError

    try:
        return model.select(*only, exclude=exclude)
    except ValueError:
        raise UnsupportedError(f"none of the {n:,} weights has a name that is chosen") from None


def _fitting(name: str, globs: Sequence[str], model: Model, path: str) -> Sequence[str]:
    """Return globs of which each fits a name; one that does not is only warned of in a batch."""
    from anamnesis.base.errors import UnsupportedError
    from anamnesis.base.patterns import unfitting
    from anamnesis.cli.errors import complain

    unfit = unfitting(globs, list(model))
    paths = click.get_current_context().params.get("paths", ())
    for glob in unfit:
        told = f"{name}: no weight matches {glob!r}"
        if len(paths) == 1 and path in paths:
            raise UnsupportedError(told)
        complain(f"{path}: {told}", "warning")
    # If none fits that says what is taken, then nothing is.
    return globs if name == "--only" else [glob for glob in globs if glob not in unfit]
