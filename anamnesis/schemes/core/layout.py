"""A layout: the way in which one producer stores one encoding, written down once.

The reader finds by it, the encoder writes by it, codes that are there already are moved by it; the
names that are parts of quantised weights, the documentation and tests are made from it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, TypeVar

from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.weight import Weight

if TYPE_CHECKING:
    from anamnesis.schemes.core.codes import Out
    from anamnesis.schemes.core.encoding import Encoding

V = TypeVar("V")

AS_VALUES = "exclude this weight, so that it is written as values"
ExpertsTool = Literal["llm-compressor", "ModelOpt"]  # which split stacks of experts
StacksOf = Literal["transformers", "mlx-lm"]  # whose stacks of experts
Shapes = Mapping[str, tuple[int, ...]]  # by the names of weights, or the roles of parts
Config = Mapping[str, Any]  # what config.json says
Beside = list[tuple[Part, bytes]]  # parts that no encoder makes


class Layers(NamedTuple):
    """The modules of an output, as configs name them."""

    plain: Sequence[str]
    quantised: Sequence[str] = ()
    config: Mapping[str, Any] = MappingProxyType({})


class Repack(NamedTuple):
    """A weight's own codes in the layout of an encoding: bits are moved, none is computed anew."""

    encodings: tuple[Encoding, ...]
    parts: tuple[StoredTensor, ...]
    is_exact: bool = True
    is_cast: bool = False


class Unmovable(UnsupportedError):
    """A weight's own codes are of the kind that a layout holds, but cannot be moved into it."""

    def __init__(
        self, message: str, *, remedy: str | None = None, why: str = "", is_cast: bool = False
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.why = why
        self.is_cast = is_cast


Moves = Mapping[str, "Repack | Unmovable"]  # by weight: what is moved, or why it is not


def unmovable(
    codes: StoredTensor, name: str, shape: Sequence[int], why: str, *, is_cast: bool = False
) -> Unmovable:
    """Return the error for a weight with these codes that cannot be repacked, and why."""
    given = codes.unsupported(f"{name} {list(shape)} cannot be repacked: {why}", remedy=AS_VALUES)
    error = Unmovable(given.message, remedy=given.remedy, why=why, is_cast=is_cast)
    error.source, error.tensor = given.source, given.tensor
    return error


def module_of(name: str) -> str:
    """Return the name of a weight without its last word, but with the dot: what siblings have."""
    return name.removesuffix("weight") if f".{name}".endswith(".weight") else f"{name}."


def each_moved(views: Mapping[str, V], write: Callable[[V], Repack | None]) -> Moves:
    """Return what becomes of each view that the layout is for, or why it cannot be moved."""
    found: dict[str, Repack | Unmovable] = {}
    for name, view in views.items():
        try:
            repack = write(view)
        except Unmovable as error:
            found[name] = error
        else:
            found |= {} if repack is None else {name: repack}
    return found


class Field(NamedTuple):
    """A part of a weight: what it is called and what it is stored in."""

    role: str
    name: str
    dtypes: tuple[str, ...] = ()
    lone: tuple[int, ...] | None = None
    unless: str = ""

    @property
    def is_suffix(self) -> bool:
        """Whether it is called by the weight's name with something behind it."""
        return self.name.startswith("{weight}")

    def named(self, weight: str) -> str:
        return (weight if self.is_suffix else module_of(weight)) + self.name.partition("}")[2]

    def part(self, weight: str, dtype: DType, shape: tuple[int, ...]) -> Part:
        """Return this part, given what the encoder makes; words of bytes take fewer items."""
        if self.lone is not None and not shape:
            shape = self.lone
        own = DTYPES[self.dtypes[0]] if self.dtypes and dtype.name != self.dtypes[0] else dtype
        if own.bits != dtype.bits:
            shape = (*shape[:-1], shape[-1] * dtype.bits // own.bits)
        return Part(self.named(weight), own, shape)

    def moved(self, stored: StoredTensor, weight: str) -> StoredTensor:
        """Return bytes that are there already as this part."""
        part = self.part(weight, stored.dtype, stored.shape)
        return stored._replace(name=part.name, dtype=part.dtype, shape=part.shape)

    def weight_of(self, name: str) -> str | None:
        """Return the weight that a part of a name would be of; None if it is called otherwise."""
        end = self.name.partition("}")[2]
        if not name.endswith(end):
            return None
        head = name.removesuffix(end)
        if self.is_suffix:
            return head
        return f"{head}weight" if head.endswith(".") or not head else None


def stored_parts(
    fields: Sequence[Field], weight: str, find: Callable[[str], StoredTensor | None]
) -> dict[str, StoredTensor]:
    """Return the parts of a weight that are there, by their roles."""
    named = [(field.role, find(field.named(weight))) for field in fields]
    return {role: stored for role, stored in named if stored is not None}


def missing(fields: Sequence[Field], stored: Mapping[str, StoredTensor]) -> list[Field]:
    """Return the parts that are not there, though nothing excuses it."""
    return [field for field in fields if not field.unless and field.role not in stored]


class Layout(ABC):
    """Names, dtypes and shapes of parts, and what configs say; no numbers. A value."""

    fields: ClassVar[tuple[Field, ...]] = ()
    takes: ClassVar[type[Any] | None] = None
    conv1d: ClassVar[Literal["as stored", "as linear", "left"]] = "as stored"
    needs_config: ClassVar[bool] = False
    needs_method: ClassVar[bool] = False
    config_name: ClassVar[Literal["config.json", "params.json"]] = "config.json"
    config_keys: ClassVar[tuple[str, ...]] = ("quantization_config",)
    moves_left: ClassVar[bool] = True
    # The tool that splits stacks of experts into matrices as this layout does; None if they stay.
    experts_tool: ClassVar[ExpertsTool | None] = None
    # The library whose stacks of experts it holds; None if each expert has matrices of its own.
    stacks_of: ClassVar[StacksOf | None] = None

    def fitted(self, dtype: DType) -> Self:
        """Return the layout of weights of another dtype, where parts or configs name that."""
        return self

    # --- which weights -------------------------------------------------------------------------

    def turns(self, name: str, shape: tuple[int, ...]) -> bool:
        """Return whether a weight's matrices are stored transposed, whatever its layer is."""
        return False

    def refuses(self, name: str, shape: tuple[int, ...], dtype: DType) -> str | None:
        """Return why a weight, turned where that is so, is not stored so; None if it can be."""
        return None

    def leaves(self, shapes: Shapes, config: Config) -> Mapping[str, str]:
        """Return the weights that the layout's own tools leave as they are, and why."""
        return {}

    def others(self, shapes: Shapes, config: Config) -> Mapping[str, str]:
        """Return the weights that the layout's own tools write otherwise: names of encodings."""
        return {}

    def together(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the weights whose bytes depend on what the surveys of all of them find."""
        return []

    # --- parts ---------------------------------------------------------------------------------

    def parts(
        self, name: str, shape: tuple[int, ...], outs: Sequence[Out], found: bytes = b""
    ) -> tuple[Part, ...]:
        """Return the tensors that a weight is stored as: each of `outs`, then what is beside."""
        by_role = {field.role: field for field in self.fields}
        own = [by_role[out.role].part(name, out.dtype, out.shape) for out in outs]
        return (*own, *(part for part, _ in self.beside(name, shape, found)))

    def beside(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> Beside:
        """Return what the layout stores beside what a weight is encoded as, with its bytes."""
        return []

    @abstractmethod
    def weight(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        """Return what `parts` lists as the weight that it is."""

    # --- codes that are there already ----------------------------------------------------------

    def view(self, weight: Weight) -> Any:
        """Return a weight's own codes as `takes` names them; None if they are of another kind."""
        return None if self.takes is None else weight.view(self.takes)

    def moved(self, name: str, found: Mapping[str, StoredTensor]) -> tuple[StoredTensor, ...]:
        """Return parts that are there already, by their roles, as this layout calls them."""
        return tuple([f.moved(found[f.role], name) for f in self.fields if f.role in found])

    def write(self, view: Any, encoding: Encoding) -> Repack | None:
        """Return codes, seen as `takes` names them, in this layout; None if it is not for them."""
        # Nothing but scales, zero points and the like is read. Codes of another kind are cast,
        # where a closed form gives others that stand for the same values.
        return None

    def write_all(self, views: Mapping[str, Any], encoding: Encoding) -> Moves:
        """Return what `write` does of several weights of a model, by their names."""
        # Where settings must be the same of all of them, they are settled here.
        return each_moved(views, lambda view: self.write(view, encoding))

    # --- what other programs read --------------------------------------------------------------

    def undetermined(self, shapes: Shapes) -> Mapping[str, Any]:
        """Return what the shapes of a weight's parts, by their roles, leave open; usually nothing.

        These are settings as a section of config.json has them; a lone file says them itself.
        """
        return {}

    def declare(self, layers: Layers) -> dict[str, Any]:
        """Return the `quantization_config` by which other programs load what was written."""
        return {}

    def declare_each(self, layers: Mapping[str, Encoding], config: Config) -> dict[str, Any] | None:
        """Return the config where some layers are in other encodings; None if none says that."""
        return None

    def files(self, layers: Layers) -> dict[str, dict[str, Any]]:
        """Return the JSON files that repeat for other programs what config.json says, by name."""
        return {}
