"""One weight of a model: its values as arrays of several libraries."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from anamnesis.base.arguments import checked
from anamnesis.base.dtypes import DTYPES, OUTPUT_DTYPES, DType, DTypeLike, output_dtype
from anamnesis.base.levels import LevelName, resolve_level
from anamnesis.base.limits import ParseLimits, hold
from anamnesis.base.printable import shown
from anamnesis.base.stored import StoredTensor
from anamnesis.base.workers import Cancel
from anamnesis.frameworks import to_torch
from anamnesis.operators import Operators
from anamnesis.schemes.core.plain import Plain, plain_dtype
from anamnesis.schemes.core.rounding import MathName, by_math
from anamnesis.schemes.core.weight import Weight

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray


__all__ = ["Decoding", "Owner", "Tensor"]


class Owner(Protocol):
    """What a tensor asks of its model."""

    @property
    def _limits(self) -> ParseLimits: ...

    def _check_open(self) -> None: ...

    def __getitem__(self, name: str) -> Tensor: ...


class Decoding(NamedTuple):
    """How values are decoded; `Tensor.numpy` says what it means."""

    threads: int | None = None
    level: LevelName | None = None
    math: MathName = "float32"
    cancel: Cancel | None = None


class Tensor(Operators):
    """One weight of a model, decoded when its values are asked for, and as far as they are.

    `tensor[3]`, `tensor[:10]` and `tensor[3, 10:20]` read and decode what they give; they take
    what numpy calls basic indices. `np.asarray(tensor)`, `torch.from_dlpack(tensor)` and whatever
    else knows one of these protocols get a new array of all values, in the default dtype. So do
    operators, and methods of arrays that it has not itself: `tensor * 2`, `tensor > 0`,
    `tensor.clip(-1, 1)`, `tensor.mean()`.

    Two are equal if they are the same weight of equal models. A tensor can be pickled if its model
    was opened by a path.
    """

    __slots__ = ("_model", "_weight")

    def __init__(self, weight: Weight, model: Owner) -> None:
        self._weight = weight
        self._model = model

    # --- what it is ----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Its name in the output."""
        return self._weight.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, outermost dimension first."""
        return self._weight.shape

    @property
    def ndim(self) -> int:
        """The number of its dimensions."""
        return len(self._weight.shape)

    @property
    def size(self) -> int:
        """The number of its elements."""
        return self._weight.n_elements

    @property
    def dtype(self) -> np.dtype[Any]:
        """What its values come out as unless another dtype is asked for; nothing is lost by it.

        float32 for what is quantised and for floats, but float64 for those; the stored dtype for
        integers, bools and complex numbers, which no other can be asked for; uint8 for packed
        sub-byte types. `parts` has the dtypes as they are stored.
        """
        return self._target(None).numpy()

    @property
    def nbytes(self) -> int:
        """Bytes of all values in the default dtype; `parts` has the sizes as they are stored."""
        return self._target(None).n_bytes(self.size)

    @property
    def scheme(self) -> str:
        """Its encoding in words, or its dtype if it is not quantised."""
        return self._weight.scheme

    @property
    def parts(self) -> tuple[StoredTensor, ...]:
        """The stored tensors that it is made of; the first holds the codes."""
        return self._weight.parts

    @property
    def roles(self) -> tuple[str, ...]:
        """What each of `parts` is, in a word: `codes`, `scales`, `zero points`, …"""
        from anamnesis.schemes.core.roles import roles

        return roles(self._weight)

    @property
    def is_quantized(self) -> bool:
        """Whether it takes decoding."""
        return not isinstance(self._weight, Plain)

    def dtype_out(self, dtype: DTypeLike = "bf16", *, cast_all: bool = False) -> str:
        """Return the dtype that `remember` writes it in, with these options of it: `BF16`."""
        return plain_dtype(self._weight.own_dtype, output_dtype(dtype), cast=cast_all).name

    def __repr__(self) -> str:
        return f"Tensor({self.name!r}, {self.scheme}, {list(self.shape)})"

    # --- its values ----------------------------------------------------------------------------

    @checked
    def numpy(
        self,
        dtype: DTypeLike | None = None,
        *,
        threads: int | None = None,
        level: LevelName | None = None,
        math: MathName = "float32",
    ) -> NDArray[Any]:
        """Return it as an array of its shape.

        Parameters
        ----------
        dtype : str, numpy.dtype, scalar type or torch.dtype, optional
            `f32`, `f16` or `bf16` (ml_dtypes.bfloat16), or what numpy, ml_dtypes, torch and JAX
            call them. By default float32; float64 for what is stored so. Integers, bools and
            complex numbers come as they are stored, packed sub-byte types as their bytes, in one
            dimension.
        threads : int, optional
            By default one for each CPU, at most 8 and at most one for each megabyte.
        level : str, optional
            Kernel level: `scalar`, `avx2`, …; by default the best that this CPU has.
        math : str
            `float32`: decoded in that, and rounded once. `reference`: the bits of the library that
            defines the encoding, with what that rounds in between; `Model.remember` says where
            they differ.

        Raises
        ------
        LimitExceeded
            If the array is larger than the limits that the model was parsed with allow.
        ParseError
            If the file has become shorter meanwhile.
        ValueError
            If `dtype` or `math` is none of these, or if the model is closed.
        """
        return self._array(dtype, Decoding(threads, level, math))

    @checked
    def torch(
        self,
        dtype: DTypeLike | None = None,
        *,
        device: torch.device | str | int | None = None,
        threads: int | None = None,
        level: LevelName | None = None,
        math: MathName = "float32",
    ) -> torch.Tensor:
        """Return it as a torch tensor; takes and raises what `numpy` does.

        The values are decoded into the tensor's own memory, BF16 too. torch is imported only here.

        Parameters
        ----------
        device : torch.device, str or int, optional
            Where it is copied to; by default it is on the CPU.
        """
        array = self._array(dtype, Decoding(threads, level, math))
        return to_torch(array, self._target(dtype), device)

    def _array(self, dtype: DTypeLike | None, how: Decoding) -> NDArray[Any]:
        from anamnesis.schemes.core.arrays import decode

        target = self._target(dtype)
        weight = by_math(self._weight, how.math, target)
        self._account(self._n_bytes(dtype))
        level = resolve_level(how.level)
        return decode(weight, target, None, how.threads, level, how.cancel)

    def __getitem__(self, key: Any) -> Any:
        """Return some of its values in the default dtype, as `numpy()[key]` would.

        Only what is asked for is read and decoded, as far as the encoding can be cut: to a GGUF
        block; to 8 rows of GPTQ and AWQ in 4 bits, which share words. These lie column by column,
        so that a row of AWQ takes a small read for each column; of a model parsed with `mmap` that
        costs least. What is compressed is read from its beginning on.

        Parameters
        ----------
        key : int, slice, Ellipsis, None, or a tuple of these
            For arrays, lists and masks index what `numpy()` returns.

        Raises
        ------
        IndexError
            If it is out of bounds, or no such index; for packed sub-byte types.
        LimitExceeded, ParseError, ValueError
            As `numpy`.
        """
        from anamnesis.base.indexing import box_of
        from anamnesis.schemes.core.slices import decode_box

        target = self._target(None)
        if target.bits < 8:
            raise IndexError(f"{self.name!r} holds packed {target}: index what numpy() returns")
        box = box_of(key, self.shape)
        self._account(target.n_bytes(prod(box.counts)))
        return decode_box(self._weight, target, box, None, resolve_level())[box.rest]

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError(f"{self.name!r} lies in its file: change an array, as numpy() returns it")

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a tensor without dimensions")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        """Return True, whatever the values are: it is a handle."""
        return True

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return all values, for `np.asarray` and `np.array`.

        Raises
        ------
        ValueError
            If `copy` is False: there is no array before it is decoded.
        """
        import numpy as np

        if copy is False:
            raise ValueError(f"{self.name!r} has no array yet: it is decoded into a new one")
        if dtype is None:
            return self.numpy()
        try:
            dtype = np.dtype(dtype)
        except (TypeError, ValueError) as error:  # UnicodeError is one
            raise TypeError(f"dtype must be one of numpy's, not {shown(dtype)}") from error
        outputs = [output.numpy() for output in OUTPUT_DTYPES.values()]
        direct = dtype if dtype in outputs else None
        return self.numpy(direct).astype(dtype, copy=False)

    def __dlpack__(self, **how: Any) -> Any:
        """Return all values as a DLPack capsule."""
        return self.numpy().__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the CPU, as DLPack names it."""
        return (1, 0)

    def _dtype_beside(self, dtype: DTypeLike | None, *, cast_all: bool) -> DTypeLike | None:
        """Return what it comes out as where quantised weights come out as `dtype`.

        A float that is plain keeps its own dtype, unless it is cast too.
        """
        if dtype is None:
            return None
        own = plain_dtype(self._weight.own_dtype, output_dtype(dtype), cast=cast_all)
        return own if own in OUTPUT_DTYPES.values() else None

    def _target(self, dtype: DTypeLike | None) -> DType:
        """Return what it comes out as where `dtype` is asked for."""
        if dtype is not None:
            return plain_dtype(self._weight.own_dtype, output_dtype(dtype), cast=True)
        if not self.is_quantized and self.parts[0].dtype is DTYPES["F64"]:
            return DTYPES["F64"]
        return plain_dtype(self._weight.own_dtype, DTYPES["F32"], cast=True)

    def _n_bytes(self, dtype: DTypeLike | None) -> int:
        """Return the size of what `numpy` gives where `dtype` is asked for."""
        return self._target(dtype).n_bytes(self.size)

    def _account(self, n_bytes: int) -> None:
        self._model._check_open()
        hold(self._model._limits, [(f"tensor {self.name!r}", n_bytes)])

    # --- which it is ---------------------------------------------------------------------------

    def __eq__(self, other: object) -> Any:
        """Return whether it is the same weight; of numbers and arrays, which values are equal."""
        if isinstance(other, (int, float, complex)) or hasattr(other, "__array_interface__"):
            return self.numpy() == other
        if not isinstance(other, Tensor):
            return NotImplemented
        return self.name == other.name and self._model == other._model

    def __ne__(self, other: object) -> Any:
        equal = self.__eq__(other)
        if equal is NotImplemented:
            return equal
        return not equal if isinstance(equal, bool) else ~equal

    def __hash__(self) -> int:
        return hash((self.name, self._model))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the model's path and the name; the copy opens the path again."""
        return operator.getitem, (self._model, self.name)
