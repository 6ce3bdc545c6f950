"""A parsed model: its weights by name, and verbs that delegate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypedDict, Unpack, overload

from anamnesis.base.arguments import checked, globs
from anamnesis.base.dtypes import DTypeLike, output_dtype
from anamnesis.base.errors import AnamnesisError
from anamnesis.base.levels import LevelName
from anamnesis.base.limits import ParseLimits, hold
from anamnesis.base.nearest import UnknownName
from anamnesis.base.printable import abbreviate
from anamnesis.base.stored import StoredTensor
from anamnesis.base.workers import Cancel, check_cancel
from anamnesis.checkpoint.metadata import all_metadata
from anamnesis.checkpoint.open import Checkpoint
from anamnesis.convert.report.inspect import inspect_claim
from anamnesis.convert.report.inspection import Inspection
from anamnesis.convert.report.problems import first_of
from anamnesis.formats.base import Container
from anamnesis.frameworks import framework as arrays_of
from anamnesis.schemes.core.rounding import MathName
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.tensor import Decoding, Tensor
from anamnesis.writing import Writing

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray


__all__ = ["Model", "Origin", "Tensor"]

FrameworkName: TypeAlias = Literal["numpy", "np", "torch", "pt", "pytorch", "jax"]

_MOST_NAMES = 4  # in a repr
_LONGEST_NAME = 60


class ArrayOptions(TypedDict, total=False):
    """The keyword options of `Model.state_dict` for all frameworks."""

    cast_all: bool
    threads: int | None
    level: LevelName | None
    math: MathName
    cancel: Cancel | None


class Origin(NamedTuple):
    """How a model was opened, to open it again; a path is absolute."""

    parse: Callable[..., Model]
    where: Any
    options: Mapping[str, Any]
    # What `Model.select` was called with, each time: what it includes, excludes and drops.
    selections: tuple[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]], ...] = ()

    def open(self) -> Model:
        """Open it."""
        model = self.parse(self.where, **self.options)
        for include, exclude, drop in self.selections:
            model = model.select(*include, exclude=exclude, drop=drop)
        return model


class Model(Writing, Mapping[str, Tensor]):
    """A parsed file or directory, as a mapping from the names of its weights to `Tensor`.

    It has the names of stored tensors that cannot be read too: to ask for one of them raises what
    is wrong with it, so that nothing that goes through all weights misses one. `problems` has
    these names.

    Two are equal if they were opened by the same path in the same way, and the files have not
    changed in between. A model that was opened by a path can be pickled: the copy, in another
    process for instance, opens the path again.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        ledger: Ledger,
        limits: ParseLimits,
        origin: Origin,
        whole: Model | None = None,
    ) -> None:
        self._checkpoint = checkpoint
        self._ledger = ledger
        self._limits = limits
        self._origin = origin
        self._whole = whole  # that this one is a selection of
        self._is_closed = False

    # --- the mapping ---------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Tensor:
        """Return a weight.

        Raises
        ------
        KeyError
            If there is no such name; it tells of those that are like it.
        AnamnesisError
            What is wrong with it, if it cannot be read.
        """
        problem = self._ledger.problems.get(name)
        if problem is not None:
            raise problem
        weight = self._ledger.weights.get(name)
        if weight is None:
            raise UnknownName(name, self)
        return self._tensor(weight)

    def _tensor(self, weight: Weight) -> Tensor:
        return Tensor(weight, self)

    def __iter__(self) -> Iterator[str]:
        yield from self._ledger.weights
        yield from (name for name in self._ledger.problems if name not in self._ledger.weights)

    def __len__(self) -> int:
        return len(self._ledger.weights.keys() | self._ledger.problems.keys())

    def __contains__(self, name: object) -> bool:
        return name in self._ledger.weights or name in self._ledger.problems

    def __repr__(self) -> str:
        names = [_shortened(name) for name in self._ledger.weights]
        problems = [_shortened(name) for name in self._ledger.problems]
        told = f": {abbreviate(names, _MOST_NAMES)}" if names else ""
        if problems:
            told += f"; {len(problems):,} unreadable: {abbreviate(problems, _MOST_NAMES)}"
        return f"<anamnesis.Model of {len(names):,} weights, {self.format}{told}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from anamnesis.convert.report.html_parts import model_html

        return model_html(self._ledger, self.format)

    # --- which it is ---------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Model):
            return NotImplemented
        if self is other:
            return True
        are_files = isinstance(self._origin.where, str)
        return are_files and self._origin == other._origin and self._stamps() == other._stamps()

    def __hash__(self) -> int:
        where = self._origin.where
        return hash(where) if isinstance(where, str) else id(where)

    def _stamps(self) -> list[list[int | str]]:
        return [shard.source.stamp() for shard in self._checkpoint.shards.values()]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path and the options."""
        if not isinstance(self._origin.where, str):
            kind = type(self._origin.where).__name__
            raise TypeError(f"only a model parsed from a path can be pickled, not from {kind}")
        return Origin.open, (self._origin,)

    # --- some of it ----------------------------------------------------------------------------

    def select(
        self, *include: str, exclude: str | Iterable[str] = (), drop: str | Iterable[str] = ()
    ) -> Model:
        """Return a view of some weights, by patterns of their names.

        `inspect`, `remember` and all else take these alone. The names stay as they are. The view
        reads the same files; they are closed with the model, not with the view.

        Parameters
        ----------
        *include : str
            Patterns as the shell has them: `*`, which goes across dots, `?`, `[0-9]`. A pattern is
            of a whole name, or of the beginning of one up to a dot. A weight is taken if one of
            them fits; without any, all are.
        exclude : str or iterable of str
            Patterns of what is left out again.
        drop : str or iterable of str
            Patterns of what is left out of the rest, and counted as dropped, as `remember` does.

        Raises
        ------
        ValueError
            If no weight is chosen, or a pattern of what is dropped fits none.
        UnsupportedError
            If all that is chosen is dropped.
        """
        from anamnesis.base.patterns import chooser

        include = globs("include", include)
        excluded, dropped = globs("exclude", exclude), globs("drop", drop)
        ledger = self._ledger.only(chooser(include, excluded))
        if not ledger.weights and not ledger.problems:
            without = f" without {abbreviate(excluded)}" if excluded else ""
            raise ValueError(
                f"no weight is called {abbreviate(include or ('*',))}{without}; there are "
                f"{abbreviate(map(_shortened, self))}"
            )
        ledger = ledger.without(dropped)
        selections = (*self._origin.selections, (include, excluded, dropped))
        origin = self._origin._replace(selections=selections)
        checkpoint = self._checkpoint.only(ledger.stored)
        whole = self if self._whole is None else self._whole
        return Model(checkpoint, ledger, self._limits, origin, whole)

    @overload
    def state_dict(
        self,
        dtype: DTypeLike | None = None,
        framework: Literal["numpy", "np"] = "numpy",
        **options: Unpack[ArrayOptions],
    ) -> dict[str, NDArray[Any]]: ...

    @overload
    def state_dict(
        self,
        dtype: DTypeLike | None,
        framework: Literal["torch", "pt", "pytorch"],
        *,
        device: torch.device | str | int | None = None,
        **options: Unpack[ArrayOptions],
    ) -> dict[str, torch.Tensor]: ...

    @overload
    def state_dict(
        self,
        dtype: DTypeLike | None = None,
        *,
        framework: Literal["torch", "pt", "pytorch"],
        device: torch.device | str | int | None = None,
        **options: Unpack[ArrayOptions],
    ) -> dict[str, torch.Tensor]: ...

    @overload
    def state_dict(
        self,
        dtype: DTypeLike | None = None,
        *,
        framework: Literal["jax"],
        device: Any = None,
        **options: Unpack[ArrayOptions],
    ) -> dict[str, Any]: ...

    @checked
    def state_dict(
        self,
        dtype: DTypeLike | None = None,
        framework: FrameworkName = "numpy",
        *,
        device: Any = None,
        cast_all: bool = False,
        threads: int | None = None,
        level: LevelName | None = None,
        math: MathName = "float32",
        cancel: Cancel | None = None,
    ) -> dict[str, Any]:
        """Return all weights by name, in memory.

        Parameters
        ----------
        dtype : str, numpy.dtype, scalar type or torch.dtype, optional
            What quantised weights come out as; floats that are not quantised keep their own, as
            `remember` has it. If it is not given, all are as `Tensor.numpy` gives them.
        framework : str
            `numpy` (or `np`), `torch` (or `pt`), or `jax`, which are imported only here.
        device : optional
            Where each is copied to as soon as it is decoded: what `torch.Tensor.to` takes, or a
            device or platform of JAX. By default torch's are on the CPU, and JAX's on its default.
        cast_all : bool
            Cast also floats that are not quantised to `dtype`.
        threads : int, optional
        level : str, optional
        math : str
            As for `Tensor.numpy`.
        cancel : threading.Event or alike, optional
            Its `is_set()` stops the call, as that of `remember`.

        Raises
        ------
        AnamnesisError
            What is wrong with the first weight that cannot be read, before any is.
        Cancelled
            If `cancel` is set.
        LimitExceeded
            If all arrays together are larger than the limits that the model was parsed with allow,
            or one of them is; before there is any.
        ModuleNotFoundError
            If the framework is not installed.
        TypeError
            If `cancel` has no `is_set`, or a device is given for NumPy.
        ValueError
            If there is no such framework, dtype or math, if the model is closed, or if a weight is
            of 64 bits where JAX has none.
        """
        check_cancel(cancel)
        if self._ledger.problems:
            raise first_of(self._ledger.problems)
        wanted = {name: t._dtype_beside(dtype, cast_all=cast_all) for name, t in self.items()}
        dtypes = {name: t._target(wanted[name]) for name, t in self.items()}
        give = arrays_of(framework, device, dtypes)
        hold(
            self._limits,
            ((f"tensor {name!r}", t._n_bytes(wanted[name])) for name, t in self.items()),
        )
        how = Decoding(threads, level, math, cancel)
        return {name: give(t._array(wanted[name], how), dtypes[name]) for name, t in self.items()}

    # --- what it is ----------------------------------------------------------------------------

    @property
    def format_id(self) -> str:
        """The container: `safetensors`, `gguf`, `npz`, `npy` or `torch`."""
        return next(iter(self._checkpoint.shards.values())).id

    @property
    def format(self) -> str:
        """The container in words, with its version or kind: `GGUF v3`."""
        return next(iter(self._checkpoint.shards.values())).format

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the files' headers say of themselves.

        Strings for safetensors. For GGUF bool, int, float, str, and lists of these, which are read
        when they are first asked for.
        """
        return all_metadata(self._checkpoint.shards.values())

    @property
    def stored(self) -> Mapping[str, StoredTensor]:
        """All tensors as they lie in the files."""
        return self._checkpoint.stored

    @property
    def files(self) -> Mapping[str, Container]:
        """The files by name, each as its format tells of it."""
        return self._checkpoint.shards

    @property
    def weights(self) -> Mapping[str, Tensor]:
        """The weights that can be read; the model has the names of its `problems` too."""
        return {name: self._tensor(weight) for name, weight in self._ledger.weights.items()}

    @property
    def problems(self) -> Mapping[str, AnamnesisError]:
        """Stored tensors that cannot be read, and why."""
        return self._ledger.problems

    def inspect(self, dtype: DTypeLike = "bf16") -> Inspection:
        """Return format, schemes, counts and sizes, as they would come out at `dtype`."""
        notes = [self._checkpoint.below, *self._checkpoint.notes]
        if self._checkpoint.is_whole:
            from anamnesis.schemes.detect.layer_names import unmatched_note

            notes.append(unmatched_note(self._ledger))
        return inspect_claim(
            self._checkpoint,
            self._ledger,
            self._limits,
            wanted=output_dtype(dtype),
            notes=notes,
        )

    # --- closing -------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether the files are closed, so that no more values can be read; headers can."""
        return self._is_closed if self._whole is None else self._whole.closed

    def close(self) -> None:
        """Close the files that were opened here; for a selection there are none."""
        if self._whole is None:
            self._is_closed = True
            self._checkpoint.close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"{next(iter(self._checkpoint.shards))}: the model is closed")

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _shortened(name: str) -> str:
    """Return a name in quotes, cut if it is too long."""
    return repr(name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…")
