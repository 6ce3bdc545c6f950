"""Arithmetic with a tensor: with the array of its values, which is new each time."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

_METHODS = (
    *("all", "any", "argmax", "argmin", "astype", "clip", "copy", "cumsum", "dot", "flatten"),
    *("max", "mean", "min", "ravel", "repeat", "reshape", "round", "squeeze", "std", "sum"),
    *("swapaxes", "take", "tolist", "transpose", "var"),
)

_Operator = Callable[[Any, Any], Any]


def _binary(do: _Operator) -> _Operator:
    return lambda self, other: do(self.numpy(), other)


def _both(do: _Operator) -> tuple[_Operator, _Operator]:
    """Return an operator, and the same with the tensor on its right side."""
    return _binary(do), lambda self, other: do(other, self.numpy())


class Operators:
    """What numpy's arrays do with their values, for what has `numpy()`."""

    __slots__ = ()

    if TYPE_CHECKING:

        def numpy(self) -> NDArray[Any]: ...

    __add__, __radd__ = _both(operator.add)
    __sub__, __rsub__ = _both(operator.sub)
    __mul__, __rmul__ = _both(operator.mul)
    __matmul__, __rmatmul__ = _both(operator.matmul)
    __truediv__, __rtruediv__ = _both(operator.truediv)
    __floordiv__, __rfloordiv__ = _both(operator.floordiv)
    __mod__, __rmod__ = _both(operator.mod)
    __pow__, __rpow__ = _both(operator.pow)
    __and__, __rand__ = _both(operator.and_)
    __or__, __ror__ = _both(operator.or_)
    __xor__, __rxor__ = _both(operator.xor)
    __lt__, __le__ = _binary(operator.lt), _binary(operator.le)
    __gt__, __ge__ = _binary(operator.gt), _binary(operator.ge)

    def __neg__(self) -> NDArray[Any]:
        return -self.numpy()

    def __pos__(self) -> NDArray[Any]:
        return +self.numpy()

    def __abs__(self) -> NDArray[Any]:
        return abs(self.numpy())

    def __invert__(self) -> NDArray[Any]:
        return ~self.numpy()

    @property
    def T(self) -> NDArray[Any]:  # noqa: N802 -- as numpy has it
        """Its values, transposed."""
        return self.numpy().T

    if not TYPE_CHECKING:  # by which mistyped names would pass

        def __getattr__(self, name: str) -> Any:
            if name not in _METHODS:
                kind = type(self).__name__
                raise AttributeError(f"{kind!r} object has no attribute {name!r}")
            return lambda *args, **options: getattr(self.numpy(), name)(*args, **options)
