"""Pieces of other sources, read as if one lay behind the other."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from anamnesis.base.source import DerivedSource
from anamnesis.base.stored import StoredTensor


class JoinedSource(DerivedSource):
    """The bytes of some stored tensors, in their order."""

    def __init__(self, tensors: Sequence[StoredTensor]) -> None:
        self._tensors = tuple(tensor for tensor in tensors if tensor.n_bytes) or tuple(tensors[:1])
        super().__init__(*(tensor.source for tensor in self._tensors))
        self._starts = [0, *accumulate(tensor.n_bytes for tensor in self._tensors)]
        self.size = self._starts.pop()

    def _read_some(self, offset: int, view: memoryview) -> int:
        if offset >= self.size:
            return 0
        at = bisect_right(self._starts, offset) - 1
        tensor, begin = self._tensors[at], offset - self._starts[at]
        n = min(len(view), tensor.n_bytes - begin)
        tensor.source.read_into(tensor.offset + begin, view[:n])
        return n

    def read_into_each(self, offset: int, views: Sequence[memoryview]) -> None:
        at = bisect_right(self._starts, offset) - 1
        tensor, begin = self._tensors[at], offset - self._starts[at]
        if begin + sum(map(len, views)) <= tensor.n_bytes:
            tensor.source.read_into_each(tensor.offset + begin, views)
        else:
            super().read_into_each(offset, views)

    def held(self, offset: int, n_bytes: int) -> memoryview | None:
        if not 0 <= offset < self.size:
            return None
        at = bisect_right(self._starts, offset) - 1
        tensor, begin = self._tensors[at], offset - self._starts[at]
        if begin + n_bytes > tensor.n_bytes:
            return None
        return tensor.source.held(tensor.offset + begin, n_bytes)

    @property
    def way(self) -> str:
        from hashlib import sha256  # only here, for the sake of a quick start

        told = sha256()
        for tensor in self._tensors:
            told.update(repr((tensor.name, tensor.offset, tensor.source.way)).encode())
        return f"joined {told.hexdigest()}"
