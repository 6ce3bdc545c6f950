"""An encoding: a way to write a weight, with its settings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.codes import (
    USUAL,
    VALUES_SLOT,
    Codes,
    Extent,
    Loss,
    NotFinite,
    Survey,
    Task,
    as_matrix,
    not_finite,
)
from anamnesis.schemes.core.layout import ExpertsTool, Layers, Layout, Repack
from anamnesis.schemes.core.weight import Band, Bands, Scratch, Weight, decode_run

__all__ = [
    "VALUES_SLOT",
    "CodesInLayout",
    "Encoding",
    "ExpertsTool",
    "Extent",
    "Layers",
    "Loss",
    "NotFinite",
    "Repack",
    "Survey",
    "Task",
    "as_matrix",
    "not_finite",
]

_F32 = DTYPES["F32"]


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
    def quantises(self) -> bool:
        """Whether it encodes values, and does not only take codes that are there already."""
        return True

    @property
    def unencodable(self) -> str:
        """What of a weight it has no code for."""
        return USUAL

    @property
    def values(self) -> DType:
        """The dtype that `see` and `encode` take: the one the canonical encoder computes from."""
        return _F32

    def fitted(self, dtype: DType) -> Encoding:
        """Return the encoding of weights of a dtype, where the encoder computes in that."""
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
    ) -> Mapping[str, str]:
        """Return the weights that the encoding's own tools write in another one, and its name.

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
        """Return bands in another order than the rows'; None where bands are runs of rows.

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
            raise error.named(weight.name, self.id) from None
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
        """Return the `quantization_config`, given all modules of the output."""
        return self.declare(layers.plain)

    def declare_each(
        self, layers: Mapping[str, Encoding], config: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Return the `quantization_config` where some layers are in other encodings.

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
        """Return the JSON files that repeat for other programs what config.json says, by name."""
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


@dataclass(frozen=True)
class CodesInLayout(Encoding):
    """What can be asked for by a name: numbers of one kind, stored in one producer's way.

    Attributes
    ----------
    name : str
        Its id.
    layout : Layout
    codes : Codes or None
        None if it only takes codes that are there already, and quantises nothing.
    """

    name: str
    layout: Layout
    codes: Codes | None = None

    @property
    def id(self) -> str:
        """The name."""
        return self.name

    @property
    def numbers(self) -> Codes:
        """The encoder, of weights that were not refused.

        Raises
        ------
        UnsupportedError
            If there is none.
        """
        if self.codes is None:
            raise UnsupportedError(f"{self.id} only takes codes that are there already")
        return self.codes

    @property
    def quantises(self) -> bool:
        """Whether it encodes values, and does not only take codes that are there already."""
        return self.codes is not None

    def fitted(self, dtype: DType) -> CodesInLayout:
        """Return the encoding of weights of another dtype."""
        codes = None if self.codes is None else self.codes.fitted(dtype)
        layout = self.layout.fitted(dtype)
        if codes is self.codes and layout is self.layout:
            return self
        return replace(self, codes=codes, layout=layout)

    def refuses(self, name: str, shape: tuple[int, ...], dtype: DType) -> str | None:
        """Return what the layout says of a weight, then what the encoder says of its shape."""
        if self.codes is None:
            return f"not in codes that {self.id} holds"
        return self.layout.refuses(name, shape, dtype) or self.codes.refuses(shape)

    def parts(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> tuple[Part, ...]:
        """Return the tensors that a weight is written as, so that headers go before data."""
        return self.layout.parts(name, shape, self.numbers.outs(shape, found), found)

    def constants(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> dict[int, bytes]:
        """Return the bytes of the parts, by their place in `parts`, that no band writes to."""
        outs = self.numbers.outs(shape, found)
        try:
            by_role = self.numbers.constants(shape, found)
        except NotFinite as error:
            raise error.named(name, self.id) from None
        made = {i: by_role[out.role] for i, out in enumerate(outs) if out.role in by_role}
        own = self.layout.constants(name, shape, found)
        return made | dict(enumerate(own.values(), len(outs)))

    def extents(self, shape: tuple[int, ...], band: Band) -> tuple[Extent, ...]:
        """Return which bytes of each part a band fills; of a constant one `Extent(0, 0)`."""
        own = [Extent(0, 0)] * len(self.layout.constants("", shape))
        return (*self.numbers.extents(shape, band), *own)

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        """Encode a band of values into one buffer for each part."""
        try:
            return self.numbers.encode(values, task, outs)
        except NotFinite as error:
            raise error.named(error.of, self.id) from None

    def take(
        self, weight: Weight, task: Task, scratch: Scratch, outs: Sequence[memoryview]
    ) -> Loss:
        """Decode a band of a weight, and encode it; name the weight if that cannot be done."""
        try:
            return self.numbers.take(weight, task, scratch, outs)
        except NotFinite as error:
            raise error.named(weight.name, self.id) from None

    def repack(self, weight: Weight) -> Repack | None:
        """Return a weight's own codes in this layout; None if they are of another kind."""
        return self.repacks([weight]).get(weight.name)

    def repacks(self, weights: Iterable[Weight]) -> dict[str, Repack]:
        """Return the codes of those weights of a model that can be moved, by their names."""
        views = {weight.name: self.layout.view(weight) for weight in weights}
        views = {name: view for name, view in views.items() if view is not None}
        return self.layout.write_all(views, self) if views else {}

    def reopen(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        """Return what was written as a weight, to be decoded again."""
        assert self.numbers  # else nothing was encoded
        return self.layout.weight(name, shape, parts)

    # What the encoder and the layout say by themselves. (Until all encodings are of this class,
    # and their users ask `codes` and `layout`.)

    @property
    def unencodable(self) -> str:
        """As the encoder says."""
        return self.numbers.unencodable

    @property
    def values(self) -> DType:
        """As the encoder says."""
        return _F32 if self.codes is None else self.codes.values

    def survey(self, shape: tuple[int, ...]) -> Survey | None:
        """As the encoder says."""
        return self.numbers.survey(shape)

    def joint(self, found: Sequence[bytes]) -> bytes:
        """As the encoder says."""
        return self.numbers.joint(found)

    def grain(self, shape: tuple[int, ...]) -> int:
        """As the encoder says."""
        return self.numbers.grain(shape)

    def tiles(self, shape: tuple[int, ...]) -> Bands | None:
        """As the encoder says."""
        return self.numbers.tiles(shape)

    @property
    def conv1d(self) -> Literal["as stored", "as linear", "left"]:  # type: ignore[override]
        """As the layout says."""
        return self.layout.conv1d

    @property
    def needs_config(self) -> bool:  # type: ignore[override]
        """As the layout says."""
        return self.layout.needs_config

    @property
    def config_keys(self) -> tuple[str, ...]:  # type: ignore[override]
        """As the layout says."""
        return self.layout.config_keys

    @property
    def moves_left(self) -> bool:  # type: ignore[override]
        """As the layout says."""
        return self.layout.moves_left

    @property
    def experts_tool(self) -> ExpertsTool | None:
        """As the layout says."""
        return self.layout.experts_tool

    def turns(self, name: str, shape: tuple[int, ...]) -> bool:
        """As the layout says."""
        return self.layout.turns(name, shape)

    def leaves(
        self, shapes: Mapping[str, tuple[int, ...]], config: Mapping[str, Any]
    ) -> Mapping[str, str]:
        """As the layout says."""
        return self.layout.leaves(shapes, config)

    def others(
        self, shapes: Mapping[str, tuple[int, ...]], config: Mapping[str, Any]
    ) -> Mapping[str, str]:
        """As the layout says."""
        return self.layout.others(shapes, config)

    def together(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        """As the layout says."""
        return self.layout.together(names)

    def declare(self, plain: Sequence[str]) -> dict[str, Any]:
        """As the layout says."""
        return self.layout.declare(Layers(plain, (), {}))

    def declare_with(self, layers: Layers) -> dict[str, Any]:
        """As the layout says."""
        return self.layout.declare(layers)

    def declare_each(
        self, layers: Mapping[str, Encoding], config: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """As the layout says."""
        return self.layout.declare_each(layers, config)

    def files(self, layers: Layers) -> dict[str, dict[str, Any]]:
        """As the layout says."""
        return self.layout.files(layers)
