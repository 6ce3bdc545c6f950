"""Any model, opened as `safetensors.safe_open` opens a file."""

from __future__ import annotations

import sys
from math import prod
from typing import TYPE_CHECKING, Any, Literal, Unpack

from anamnesis.base.arguments import checked
from anamnesis.base.dtypes import DType, DTypeLike, output_dtype
from anamnesis.base.indexing import box_of
from anamnesis.base.levels import resolve_level
from anamnesis.base.limits import hold
from anamnesis.base.nearest import UnknownName
from anamnesis.frameworks import framework as arrays_of
from anamnesis.opening import ParseOptions, Where, parse
from anamnesis.schemes.core.plain import Plain, plain_dtype
from anamnesis.schemes.core.weight import Weight

if TYPE_CHECKING:
    from anamnesis.model import FrameworkName

__all__ = ["safe_open"]


class safe_open:  # noqa: N801 -- as safetensors has it
    """Open a model as `safetensors.safe_open` does a file: any container, of one file or many.

    It gives what safetensors gives of the file that `remember` would write: names and dtypes of
    plain tensors as they are stored, quantised weights decoded. With `dtype="stored"` it gives the
    tensors as they lie in the files, codes and scales apart: of a safetensors file those that
    safetensors itself gives. Blocks of a GGUF and packed types are then their bytes, as uint8.

    Parameters
    ----------
    filename : path, bytes-like or file object
        Whatever `parse` takes.
    framework : str
        `np` (or `numpy`), `pt` (or `torch`, `pytorch`), or `jax`.
    device : optional
        Where tensors are copied to.
    dtype : str, numpy.dtype, scalar type or torch.dtype
        What quantised weights are decoded to: `bf16` (default), `f16` or `f32`; or `stored`.
    **options
        Those of `parse`.

    Raises
    ------
    AnamnesisError, OSError, TypeError, ValueError
        As `parse`; `get_tensor` and slices raise what `Tensor.numpy` does, and KeyError for a name
        that is not there.
    """

    @checked
    def __init__(
        self,
        filename: Where,
        framework: FrameworkName = "np",
        device: Any = "cpu",
        *,
        dtype: DTypeLike | Literal["stored"] = "bf16",
        **options: Unpack[ParseOptions],
    ) -> None:
        is_default = str(device) == "cpu" and framework in ("np", "numpy")
        self._where = framework, None if is_default else device
        arrays_of(*self._where, {})  # refuses what is no framework
        is_stored = isinstance(dtype, str) and dtype == "stored"
        self._wanted = None if is_stored else output_dtype(dtype)
        self._model = parse(filename, **options)

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *_: object) -> None:
        self._model.close()

    def keys(self) -> list[str]:
        """Return the names of all tensors, sorted."""
        return sorted(self._names())

    def offset_keys(self) -> list[str]:
        """Return the names of all tensors, in the order in which they lie in the files."""
        files = {id(f.source.base): i for i, f in enumerate(self._model.files.values())}

        def place(name: str) -> tuple[int, int]:
            stored = self._model.stored.get(name)
            if stored is None:
                stored = self._model._ledger.weights[name].parts[0]
            return files.get(id(stored.source.base), 0), stored.offset

        return sorted(self._names(), key=place)

    def metadata(self) -> dict[str, Any] | None:
        """Return what the headers say of the model; None if that is nothing."""
        return dict(self._model.metadata) or None

    def get_tensor(self, name: str) -> Any:
        """Return a tensor."""
        return self.get_slice(name)[...]

    def get_tensors(self) -> dict[str, Any]:
        """Return all tensors by name, in the order of `offset_keys`."""
        return {name: self.get_tensor(name) for name in self.offset_keys()}

    def get_slice(self, name: str) -> Slice:
        """Return a tensor of which indices read what they give, and no more."""
        stored = self._model.stored.get(name)
        if self._wanted is not None:
            weight = self._model[name]._weight  # raises what is wrong with it
            dtype = plain_dtype(weight.own_dtype, self._wanted, cast=False)
            if stored is None or dtype.bits >= 8:
                return Slice(self, weight, dtype, weight.shape)
        if stored is None:
            raise UnknownName(name, self._model.stored)
        seen = stored.in_bytes()
        return Slice(self, Plain(name, seen.shape, (seen,)), stored.dtype, stored.shape)

    def _names(self) -> list[str]:
        return list(self._model.stored if self._wanted is None else self._model)


class Slice:
    """A tensor that is read by indices: numpy's basic ones."""

    def __init__(
        self, opened: safe_open, weight: Weight, dtype: DType, shape: tuple[int, ...]
    ) -> None:
        self._opened = opened
        self._weight = weight
        self._dtype = dtype
        self._shape = shape

    def get_shape(self) -> list[int]:
        """Return its shape."""
        return list(self._shape)

    def get_dtype(self) -> str:
        """Return its dtype, as safetensors calls it: `F32`."""
        return self._dtype.name

    def __repr__(self) -> str:
        return f"<Slice of {self._weight.name!r}, {self._dtype} {self.get_shape()}>"

    def __getitem__(self, key: Any) -> Any:
        """Return some of its values, or all: `[...]`."""
        import numpy as np

        from anamnesis.schemes.core.arrays import decode
        from anamnesis.schemes.core.slices import decode_box

        model, weight = self._opened._model, self._weight
        own = weight.own_dtype
        dtype = self._dtype if own is None else own
        box = box_of(key, weight.shape)
        model._check_open()
        hold(model._limits, [(f"tensor {weight.name!r}", dtype.n_bytes(prod(box.counts)))])
        if box.counts == weight.shape and all(step == 1 for step in box.steps):
            array = decode(weight, dtype, None, None, resolve_level())
        else:
            array = decode_box(weight, dtype, box, None, resolve_level())
        give = arrays_of(*self._opened._where, {weight.name: dtype})
        made = give(np.asarray(array[box.rest]), dtype)
        is_pair = self._dtype.name == "F4" and type(made).__module__ == "torch"
        return made.view(sys.modules["torch"].float4_e2m1fn_x2) if is_pair else made
