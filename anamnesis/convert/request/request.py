"""What a conversion is to do: its options, resolved."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypedDict

from anamnesis.base.arguments import Globs, Lora, Size, Word, hint_of, taken
from anamnesis.base.dtypes import DType, DTypeLike
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.levels import LevelName
from anamnesis.base.limits import UNLIMITED, ParseLimits
from anamnesis.base.patterns import chooser
from anamnesis.base.printable import shown
from anamnesis.base.workers import Cancel, check_cancel, stop_if
from anamnesis.convert.request.form import Form
from anamnesis.convert.request.options import OPTIONS
from anamnesis.convert.request.share import check_executor
from anamnesis.convert.request.spellings import Named
from anamnesis.formats.base import Writer
from anamnesis.formats.written import make_writer
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.rounding import MathName

if TYPE_CHECKING:
    from anamnesis.formats.imatrix import ImatrixFile
    from anamnesis.schemes.families.ggml.choose import Options
    from anamnesis.schemes.families.ggml.encode import Imatrix

Given: TypeAlias = "str | os.PathLike[str] | ImatrixFile | Imatrix"  # an importance matrix
ExpertsName = Literal["stacked", "split", "keep"]
NamesName = Literal["auto", "keep"]
Progress = Callable[[int, int], None]  # bytes done, bytes in all


class MixOptions(TypedDict, total=False):
    """The keyword options of a mix; `Model.convert` explains them."""

    pure: bool
    output_tensor_type: Word | None
    token_embedding_type: Word | None
    leave_output_tensor: bool
    override_kv: Mapping[str, Any] | None
    prune_layers: int | Sequence[int] | None
    keep_split: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedMix:
    """A mix, and what is asked beside it."""

    name: str
    options: Options
    override_kv: Mapping[str, Any]
    prune_layers: tuple[int, ...] = ()
    keep_split: bool = False


def asked_mix(name: str | None, given: Mapping[str, Any]) -> AskedMix | None:
    """Return a mix with its options; None if there is none."""
    if name is None:
        for option, value in given.items():
            if value:
                raise ValueError(f"{option} is for a mix of GGUF's types, such as gguf-q4_k_m")
        return None
    from anamnesis.schemes.families.ggml.choose import Options

    def named(option: str) -> str | None:
        text = given.get(option)
        try:
            return None if text is None else block_type(text)
        except ValueError as error:
            raise ValueError(f"{option}: {error}") from None

    options = Options(
        pure=bool(given.get("pure")),
        output=named("output_tensor_type"),
        embedding=named("token_embedding_type"),
        leave_output=bool(given.get("leave_output_tensor")),
    )
    return AskedMix(
        name=name,
        options=options,
        override_kv={k: _typed(k, v) for k, v in (given.get("override_kv") or {}).items()},
        prune_layers=given.get("prune_layers") or (),
        keep_split=bool(given.get("keep_split")),
    )


def block_type(name: str) -> str:
    """Return a type of GGUF's by its name, as a target or as llama-quantize has it."""
    from anamnesis.schemes.families.ggml.choose import type_named

    return type_named(name.lower().removeprefix("gguf-"))


def _typed(key: str, value: Any) -> Mapping[str, Any]:
    """Return a value with the type that llama-quantize gives it; one that has a type as it is."""
    if isinstance(value, Mapping) and value.keys() == {"type", "value"}:
        return value
    types = {bool: "bool", int: "uint32", float: "float32", str: "string"}
    if type(value) not in types:
        raise ValueError(
            f"override_kv {key!r} must be a number, a bool or a text, not {shown(value)}"
        )
    return {"type": types[type(value)], "value": abs(value) if type(value) is int else value}


class How(NamedTuple):
    """How bands are made: threads, kernels, and who watches or stops them."""

    threads: int
    level: int
    progress: Progress | None = None
    cancel: Cancel | None = None

    def tell(self, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(done, total)

    def check(self) -> None:
        """Raise `Cancelled` if it is requested."""
        stop_if(self.cancel)


class RememberOptions(TypedDict, total=False):
    """The keyword options of `Model.remember`, whose docstring explains them."""

    threads: int | None
    progress: Progress | Literal[True] | None
    cancel: Cancel | None
    force: bool
    resume: bool
    sync: bool
    cast_all: bool | None
    allow_unknown: bool
    max_shard_size: Size | None
    level: LevelName | None
    math: MathName
    drop: Globs
    edit: Mapping[str, Any] | None
    experts: ExpertsName | None
    part: str | None
    executor: Any


class ConvertOptions(RememberOptions, MixOptions, total=False):
    """The keyword options of `Model.convert`, `Model.forget` and `Model.plan`."""

    dtype: DTypeLike | None
    include: Globs
    exclude: Globs
    overrides: Mapping[str, Named] | None
    rename: Mapping[str, str] | None
    lora: Lora | None
    metadata: Mapping[str, Any] | None
    split_max_size: Size | None
    loss: bool
    verify: bool
    lossless: bool
    expect_same: str | os.PathLike[str] | None
    strict: bool
    imatrix: Given | None
    names: NamesName
    tokenizer_pre: str | None


def check_options(given: Mapping[str, Any], known: type[RememberOptions]) -> dict[str, Any]:
    """Return options as they are meant; refuse those that are unknown, or of another type."""
    hints = known.__annotations__
    for name in given:
        if name not in hints:
            raise TypeError(f"there is no option {name!r}; there are {', '.join(hints)}")
    return {name: taken(name, value, hint_of(hints[name])) for name, value in given.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The options of a conversion, resolved."""

    dtype: DType
    form: Form
    threads: int
    level: int
    progress: Progress | None = None
    cancel: Cancel | None = None
    force: bool = False
    resume: bool = False
    sync: bool = False
    part: str | None = None
    executor: Any = None
    cast_all: bool = False
    allow_unknown: bool = False
    max_shard_size: int | None = None
    encoding: Encoding | None = None
    drop: tuple[str, ...] = ()
    edit: Mapping[str, Any] = field(default_factory=dict)
    lora: Mapping[str, float] = field(default_factory=dict)  # weights of adapters, by path
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    overrides: tuple[tuple[str, Encoding | None], ...] = ()
    rename: tuple[tuple[str, str], ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    split_max_size: int | None = None
    measure: bool = True
    verify: bool = False
    lossless: bool = False
    expect_same: str | os.PathLike[str] | None = None
    strict: bool | None = False
    keep_blocks: bool = False
    math: MathName = "float32"
    experts: ExpertsName | None = None
    mix: AskedMix | None = None
    imatrix: Imatrix | None = None
    names: NamesName = "auto"
    of_images: bool = False  # a GGUF of an image or video model, which has other readers
    tokenizer_pre: str | None = None
    limits: ParseLimits = UNLIMITED
    numbered: Mapping[str, str] = field(default_factory=dict)
    spelt: Mapping[str, Collection[str]] = field(default_factory=dict)  # by patterns of others

    def __post_init__(self) -> None:
        for row in OPTIONS:
            if row.kind.check is not None and row.call in ("remember", "convert"):
                row.check(getattr(self, row.name))
        check_cancel(self.cancel)
        for pattern, replacement in self.rename:
            try:
                re.sub(pattern, replacement, "")
            except re.error as error:
                raise ValueError(f"rename: {pattern!r} to {replacement!r}: {error}") from None

    def writer(self) -> Writer:
        if self.of_images:
            from anamnesis.formats.gguf.write import GgufWriter

            return GgufWriter(of_images=True)
        return make_writer(self.form.container)

    @property
    def how(self) -> How:
        return How(self.threads, self.level, self.progress, self.cancel)

    @property
    def is_resumable(self) -> bool:
        """Whether a later run can recognise this request: functions cannot be compared."""
        return not any(map(callable, self.edit.values()))

    def check_spread(self) -> None:
        """Refuse what other processes cannot be given, if they make some of the files."""
        option = "part" if self.executor is None else "executor"
        if getattr(self, option) is None:
            return
        if self.executor is not None:
            check_executor(self.executor)
        functions = [pattern for pattern, value in self.edit.items() if callable(value)]
        why = {
            f"edit: the function for {functions[0]!r} stays in this process" if functions else "",
            "expect_same compares all files at once" if self.expect_same is not None else "",
            "cancel: workers cannot ask it" if self.cancel and option == "executor" else "",
            "part: its files are made here" if self.part and option == "executor" else "",
        } - {""}
        if why:
            raise UnsupportedError(min(why), remedy=f"leave {option}=... out")

    def override(self, *names: str) -> tuple[str, Encoding | None] | None:
        """Return the first override that matches one of a weight's names."""
        return next((o for o in self.overrides if self._fits(names, o[:1])), None)

    def wants(self, *names: str) -> bool:
        """Whether include and exclude let a weight be encoded."""
        if self.exclude and self._fits(names, self.exclude):
            return False
        return not self.include or self._fits(names, self.include)

    def _fits(self, names: tuple[str, ...], patterns: tuple[str, ...]) -> bool:
        if any(map(chooser(patterns), names)):
            return True
        spelt = [self.spelt[pattern] for pattern in patterns if pattern in self.spelt]
        return any(name in some for some in spelt for name in names)

    def renamed(self, name: str) -> str:
        """Return a tensor's name in the output."""
        name = self.numbered.get(name, name)
        for pattern, replacement in self.rename:
            name = re.sub(pattern, replacement, name)
        return name
