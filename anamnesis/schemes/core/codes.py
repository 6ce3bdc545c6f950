"""The way there: how values become codes and scales, which know no names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import NamedTuple, Self

import anamnesis._core as _core
from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.errors import UnsupportedError
from anamnesis.schemes.core.bands import Band, Bands
from anamnesis.schemes.core.weight import Scratch, Weight, decode_run

AS_IT_IS = "exclude this weight, so that it stays as it is"
VALUES_SLOT = -1  # the slot of a worker's scratch for values that are encoded, compared or checked

# The second may come of finite values: a sum or a difference of the largest ones overflows.
USUAL = "an infinity or a NaN is in it, or values too large"


def as_matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return rows and columns of the matrices of a stack, one below the other."""
    return prod(shape[:-1]), shape[-1]


def place_of(at: int, shape: tuple[int, ...]) -> list[int]:
    """Return the indices of an element from its place in the order of rows."""
    place = []
    for dim in reversed(shape):
        at, rest = divmod(at, dim)
        place.append(rest)
    return place[::-1]


class NotFinite(UnsupportedError):
    """Values to be encoded hold an infinity or a NaN, make one, or have no code."""

    # An encoder says why; who knows the weight and the encoding names them.

    def __init__(
        self,
        why: str = USUAL,
        which: str = "",
        *,
        name: str = "the values",
        encoding: str = "this encoding",
    ) -> None:
        usual = f"which {encoding} cannot encode"
        super().__init__(f"{name}: {why}, {which or usual}", remedy=AS_IT_IS)
        self._said = why, which
        self.of = name

    def named(self, name: str, encoding: str) -> NotFinite:
        return NotFinite(*self._said, name=name, encoding=encoding)


class Extent(NamedTuple):
    """Which bytes of a part a band fills: one piece, or several of one length."""

    offset: int
    n_bytes: int
    stride: int = 0
    pieces: int = 1


class Loss(NamedTuple):
    """What writing a band took; the losses of a weight's bands are added up."""

    overflows: int = 0
    n: int = 0
    absolute: float = 0.0
    largest: float = 0.0
    squared: float = 0.0
    power: float = 0.0


class Task(NamedTuple):
    """A band that is to be encoded."""

    band: Band
    shape: tuple[int, ...]
    found: bytes
    level: int
    measures: bool = False
    origin: tuple[int, int] = (0, 0)

    @property
    def n(self) -> int:
        return self.band.stop - self.band.start

    @property
    def matrix(self) -> tuple[int, int]:
        """Rows and columns of whole rows, of one matrix or of several."""
        return self.n // self.shape[-1], self.shape[-1]

    def measured(
        self,
        errors: tuple[float, float, float, float] | None,
        why: str = USUAL,
        *,
        what: str = "the values",
    ) -> Loss:
        if errors is None:
            raise NotFinite(why, name=what)
        return Loss(0, self.n if self.measures else 0, *errors)


class Survey(ABC):
    """A first pass over a weight, where its bytes depend on all of it: a maximum, a mean."""

    @abstractmethod
    def see(self, values: memoryview, band: Band, level: int) -> None:
        """Take a band in; called for each once, in any order and from several threads."""

    @abstractmethod
    def found(self) -> bytes:
        """Return what was found, in a few bytes, which are journalled for resumed runs."""
        # Called when all bands were seen.


class Out(NamedTuple):
    """Something that a weight is encoded as, which a layout gives a name."""

    role: str
    dtype: DType
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Importance:
    """How important the columns of a weight's matrices are."""

    digest: str
    values: memoryview = field(compare=False, repr=False)
    n_unmeasured: int = 0
    n_zeros: int = 0


class Codes(ABC):
    """An encoder; a value, without state, that its settings define. It knows no names."""

    @property
    def given(self) -> str:
        """A digest of what it was given for one weight, beside settings that its id says."""
        return ""

    def with_importance(self, importance: Importance | None) -> Codes:
        """Return the encoder of a weight whose columns are so important, if it looks at that."""
        return self

    @property
    def unencodable(self) -> str:
        return USUAL

    @property
    def values(self) -> DType:
        """The dtype that `see` and `encode` take: the one the canonical encoder computes from."""
        return DTYPES["F32"]

    def fitted(self, dtype: DType) -> Self:
        """Return the encoder of weights of another dtype, where it computes in that."""
        return self

    def refuses(self, shape: tuple[int, ...]) -> str | None:
        """Return why a shape cannot be encoded, such as rows that end within a group; else None."""
        return None

    def survey(self, shape: tuple[int, ...]) -> Survey | None:
        """Return a first pass to be made; None if each band can be encoded by itself."""
        return None

    def joint(self, found: Sequence[bytes]) -> bytes:
        """Return what the surveys of several weights have found together."""
        # Called where a layout says that their bytes depend on all of them.
        raise NotImplementedError

    @abstractmethod
    def outs(self, shape: tuple[int, ...], found: bytes = b"") -> tuple[Out, ...]:
        """Return what a weight is encoded as, in the order of `extents` and of `encode`."""
        # Before the survey was made, `found` is empty: roles, dtypes and number are right even so,
        # and shapes about.

    def constants(self, shape: tuple[int, ...], found: bytes = b"") -> dict[str, bytes]:
        """Return the bytes of parts that no band writes to, by role."""
        return {}

    def grain(self, shape: tuple[int, ...]) -> int:
        """Return what bands are multiples of, in elements: by default whole rows."""
        return shape[-1]

    def tiles(self, shape: tuple[int, ...]) -> Bands | None:
        """Return bands in another order than the rows'; None where bands are runs of rows."""
        # They are for weights of which a grain takes too much memory. Their elements are counted in
        # an order of the encoder's own, which `extents` and `take` know, through all of the weight.
        return None

    def extents(self, shape: tuple[int, ...], band: Band) -> tuple[Extent, ...]:
        """Return which bytes of each out a band fills; of a constant one `Extent(0, 0)`."""
        # By default all outs have as many rows as the weight, one behind the other.
        (rows, cols), found = as_matrix(shape), []
        first, last = band.start // cols, band.stop // cols
        for out in self.outs(shape):
            n_bytes = out.dtype.n_bytes(prod(out.shape)) // rows
            found.append(Extent(first * n_bytes, (last - first) * n_bytes))
        return tuple(found)

    @abstractmethod
    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        """Encode a band of values into one buffer for each out; measure what it takes."""

    def take(
        self, weight: Weight, task: Task, scratch: Scratch, outs: Sequence[memoryview]
    ) -> Loss:
        """Decode a band of a weight, and encode it."""
        values = scratch.room(VALUES_SLOT, self.values.n_bytes(task.n))
        overflows = decode_run(weight, task.band, self.values, scratch, values)
        loss = self.encode(values, task, outs)
        return loss._replace(overflows=loss.overflows + overflows)


@dataclass(frozen=True)
class FloatCodes(Codes):
    """An encoder that computes in the dtype of a weight."""

    dtype: DType = field(default=DTYPES["BF16"], kw_only=True)

    @property
    def values(self) -> DType:
        return self.dtype

    def fitted(self, dtype: DType) -> Self:
        return replace(self, dtype=dtype) if dtype.name in _core.SOURCES else self
