"""An encoding is a way to write a weight, with its settings: the mirror of `Weight`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.weight import Band, Bands, Scratch, Weight, decode_run

if TYPE_CHECKING:
    from anamnesis.schemes.says.experts import ExpertsTool

__all__ = [
    "VALUES_SLOT",
    "Encoding",
    "Extent",
    "Layers",
    "Loss",
    "NotFinite",
    "Repack",
    "RepackOnly",
    "Survey",
    "Task",
    "as_matrix",
    "not_finite",
]

VALUES_SLOT = -1  # the slot of a worker's scratch for values on their way to an encoder
_F32 = DTYPES["F32"]


# The second may come of finite values: a sum or a difference of the largest ones overflows.
_USUAL = "an infinity or a NaN is in it, or values too large"


def as_matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return rows and columns of the matrices of a stack, one below the other."""
    return prod(shape[:-1]), shape[-1]


class NotFinite(UnsupportedError):
    """Values to be encoded hold an infinity or a NaN, make one, or have no code."""

    def __init__(self, message: str, why: str) -> None:
        super().__init__(message)
        self.why = why


def not_finite(name: str, encoding: str, why: str = _USUAL) -> UnsupportedError:
    """Return what is raised for values that hold or make an infinity, or what else `why` says."""
    return NotFinite(
        f"{name}: {why}, which {encoding} cannot encode; "
        "exclude this weight, so that it stays as it is",
        why,
    )


class Extent(NamedTuple):
    """Which bytes of a part a band fills: one piece, or several of one length.

    Attributes
    ----------
    offset, n_bytes : int
        Of the first piece, in the part.
    stride : int
        From the begin of one piece to that of the next.
    pieces : int
        How many there are.
    """

    offset: int
    n_bytes: int
    stride: int = 0
    pieces: int = 1


class Loss(NamedTuple):
    """What writing a band took; those of a weight are added up.

    Attributes
    ----------
    overflows : int
        Finite values that became infinite.
    n : int
        Values that were measured; 0 where nothing was.
    absolute, largest : float
        The sum and the largest of the absolute errors, of what the codes decode to in float32.
    squared, power : float
        The sums of the squared errors and of the squared values.
    """

    overflows: int = 0
    n: int = 0
    absolute: float = 0.0
    largest: float = 0.0
    squared: float = 0.0
    power: float = 0.0


class Task(NamedTuple):
    """A band that is to be encoded.

    Attributes
    ----------
    band : Band
    shape : tuple of int
        Of the weight.
    found : bytes
        What its survey found.
    level : int
        Of the kernels.
    measures : bool
        Whether what is lost is measured.
    origin : (int, int)
        Row and column of a tile in its weight, whose band and shape are its own.
    """

    band: Band
    shape: tuple[int, ...]
    found: bytes
    level: int
    measures: bool = False
    origin: tuple[int, int] = (0, 0)

    @property
    def n(self) -> int:
        """How many values there are."""
        return self.band.stop - self.band.start

    @property
    def matrix(self) -> tuple[int, int]:
        """Rows and columns of whole rows, of one matrix or of several."""
        return self.n // self.shape[-1], self.shape[-1]

    def loss(
        self,
        errors: tuple[float, float, float, float] | None,
        id: str,
        what: str = "the values",
        why: str = _USUAL,
    ) -> Loss:
        """Return what a kernel has measured.

        Raises
        ------
        UnsupportedError
            If it met or made an infinity or a NaN, of which it says None.
        """
        if errors is None:
            raise not_finite(what, id, why)
        return Loss(0, self.n if self.measures else 0, *errors)


class Survey(ABC):
    """A first pass over a weight, where its bytes depend on all of it: a maximum, a mean."""

    @abstractmethod
    def see(self, values: memoryview, band: Band, level: int) -> None:
        """Take a band in; called for each once, in any order and from several threads."""

    @abstractmethod
    def found(self) -> bytes:
        """Return what was found, in a few bytes: journalled, so that a resumed run writes the same.

        Called when all bands were seen.
        """


class Layers(NamedTuple):
    """The modules of an output, as configs name them.

    Attributes
    ----------
    plain : sequence of str
        Those whose weights were left as they are.
    quantised : sequence of str
        Those whose weights are in codes.
    config : mapping
        The model's config.json; empty where there is none.
    """

    plain: Sequence[str]
    quantised: Sequence[str]
    config: Mapping[str, Any]


class Repack(NamedTuple):
    """A weight's own codes in the layout of an encoding: bits are moved, none is computed anew.

    Attributes
    ----------
    encodings : tuple of Encoding
        The one that was asked, with the weight's own settings: its group. Where others say the
        same of this weight, as of one that has a single group, they follow.
    parts : tuple of StoredTensor
        What is to be written, under the encoding's names; their sources are views of the bytes
        where they lie.
    is_exact : bool
        Whether float32 comes out equal to the bit. Else only BF16 and F16 do: a second scale that
        one layout multiplies by and the other divides by has no exact counterpart.
    """

    encodings: tuple[Encoding, ...]
    parts: tuple[StoredTensor, ...]
    is_exact: bool = True


class Encoding(ABC):
    """A way to write a weight; a value, without state.

    Attributes
    ----------
    conv1d : str
        What becomes of the weight of a transformers' `Conv1D`, which is [in, out]: it is encoded
        `as stored`, transposed `as linear` layers have it, or `left`, because the encoding's own
        tools take nn.Linear alone.
    needs_config : bool
        Whether tensors leave open what `declare` says, so that a lone file must say it itself.
    config_keys : tuple of str
        Where config.json has what `declare` returns.
    moves_left : bool
        Whether codes that are there already are moved of weights that `leaves` names, too; programs
        may load these plain alone.
    experts_tool : str or None
        Whose way of saving stacked experts it follows, as one matrix for each layer of each; None
        if stacks stay stacks.
    """

    needs_config: ClassVar[bool] = False
    moves_left: ClassVar[bool] = True
    config_keys: ClassVar[tuple[str, ...]] = ("quantization_config",)

    @property
    @abstractmethod
    def id(self) -> str:
        """Its stable name, with its settings: what plans and runs are compared by."""

    conv1d: ClassVar[Literal["as stored", "as linear", "left"]] = "as stored"

    @property
    def experts_tool(self) -> ExpertsTool | None:
        """None."""
        return None

    @property
    def unencodable(self) -> str:
        """What of a weight it has no code for."""
        return _USUAL

    @property
    def values(self) -> DType:
        """The dtype that `see` and `encode` take: the one the canonical encoder computes from."""
        return _F32

    def fitted(self, dtype: DType) -> Encoding:
        """Return the same for a weight of a dtype, where the encoder computes in that."""
        return self

    def turns(self, name: str, shape: tuple[int, ...]) -> bool:
        """Tell whether a weight's matrices are encoded transposed, whatever its layer is."""
        return False

    def refuses(self, name: str, shape: tuple[int, ...], dtype: DType) -> str | None:
        """Return why a weight, turned where that is so, cannot be written so; None if it can."""
        return None

    def leaves(
        self, shapes: Mapping[str, tuple[int, ...]], config: Mapping[str, Any]
    ) -> Mapping[str, str]:
        """Return the weights that the encoding's own tools leave as they are, and why.

        Parameters
        ----------
        shapes : mapping of str to tuple of int
            Of all weights of the model, in its order.
        config : mapping
            The model's config.json; empty where there is none.
        """
        return {}

    def others(
        self, shapes: Mapping[str, tuple[int, ...]], config: Mapping[str, Any]
    ) -> Mapping[str, Encoding]:
        """Return the weights that the encoding's own tools write in another one, and that.

        Parameters
        ----------
        shapes, config : mapping
            As of `leaves`.
        """
        return {}

    def survey(self, shape: tuple[int, ...]) -> Survey | None:
        """Return a first pass to be made; None if each band can be written by itself."""
        return None

    def together(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the weights whose bytes depend on what the surveys of all of them find.

        Parameters
        ----------
        names : sequence of str
            Of all weights of the model; some may be written otherwise, and are not surveyed.
        """
        return []

    def joint(self, found: Sequence[bytes]) -> bytes:
        """Return what the surveys of several such weights have found together."""
        raise NotImplementedError

    @abstractmethod
    def parts(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> tuple[Part, ...]:
        """Return the tensors that a weight is written as, so that headers go before data.

        Before the survey was made, `found` is empty: names, dtypes and number of the parts are
        right even so, and shapes and sizes about.
        """

    def constants(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> dict[int, bytes]:
        """Return the bytes of the parts, by their place in `parts`, that no band writes to."""
        return {}

    @abstractmethod
    def grain(self, shape: tuple[int, ...]) -> int:
        """Return what bands are multiples of, in elements."""

    def tiles(self, shape: tuple[int, ...]) -> Bands | None:
        """Return bands of another order than that of the rows; None where rows do.

        They are for weights of which a grain takes too much memory. Their elements are counted in
        an order of the encoding's own, which `extents` and `take` know, through all of the weight.
        """
        return None

    @abstractmethod
    def extents(self, shape: tuple[int, ...], band: Band) -> tuple[Extent, ...]:
        """Return which bytes of each part a band fills; of a constant one `Extent(0, 0)`."""

    @abstractmethod
    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        """Encode a band of values into one buffer for each part; measure what it takes."""

    def take(
        self, weight: Weight, task: Task, scratch: Scratch, outs: Sequence[memoryview]
    ) -> Loss:
        """Decode a band of a weight, and encode it; name the weight if that cannot be done."""
        values = scratch.room(VALUES_SLOT, self.values.n_bytes(task.n))
        overflows = decode_run(weight, task.band, self.values, scratch, values, task.level)
        try:
            loss = self.encode(values, task, outs)
        except NotFinite as error:
            raise not_finite(weight.name, self.id, error.why) from None
        return loss._replace(overflows=loss.overflows + overflows)

    def declare(self, plain: Sequence[str]) -> dict[str, Any]:
        """Return the `quantization_config` by which other programs load what was written.

        Parameters
        ----------
        plain : sequence of str
            The modules whose weights were left as they are.
        """
        return {}

    def declare_with(self, layers: Layers) -> dict[str, Any]:
        """Return the same where it takes more than the modules whose weights were left."""
        return self.declare(layers.plain)

    def declare_each(
        self, layers: Mapping[str, Encoding], config: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Return the same where some layers are in other encodings.

        Parameters
        ----------
        layers : mapping of str to Encoding
            Those, by their modules.
        config : mapping
            The model's config.json.

        Returns
        -------
        dict or None
            None if no config says that.
        """
        return None

    def files(self, layers: Layers) -> dict[str, dict[str, Any]]:
        """Return the JSON files of a directory that say the same beside config.json, by name."""
        return {}

    def repack(self, weight: Weight) -> Repack | None:
        """Return a weight's own codes in this layout; None if they are no codes of this encoding.

        Nothing but second scales, zero points and the like is read.

        Raises
        ------
        UnsupportedError
            If the codes are the same, but this layout cannot hold them with their scales.
        """
        return None

    def repacks(self, weights: Iterable[Weight]) -> dict[str, Repack]:
        """Return what `repack` does of those weights of a model that it takes, by their names.

        Where settings must be the same of all of them, they are settled here.
        """
        found = ((weight.name, self.repack(weight)) for weight in weights)
        return {name: repack for name, repack in found if repack is not None}

    @abstractmethod
    def reopen(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        """Return what was written as a weight, to be decoded again."""


class RepackOnly(Encoding):
    """A layout that takes codes which are there already, and encodes no values."""

    def refuses(self, name: str, shape: tuple[int, ...], dtype: DType) -> str | None:
        """Refuse values."""
        return f"not in codes that {self.id} holds"

    def parts(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> tuple[Part, ...]:
        """Raise: there is no encoder."""
        raise self._no_encoder()

    def grain(self, shape: tuple[int, ...]) -> int:
        """Raise: there is no encoder."""
        raise self._no_encoder()

    def extents(self, shape: tuple[int, ...], band: Band) -> tuple[Extent, ...]:
        """Raise: there is no encoder."""
        raise self._no_encoder()

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        """Raise: there is no encoder."""
        raise self._no_encoder()

    def reopen(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        """Raise: there is no encoder."""
        raise self._no_encoder()

    def _no_encoder(self) -> UnsupportedError:
        return UnsupportedError(f"{self.id} only takes codes that are there already")
