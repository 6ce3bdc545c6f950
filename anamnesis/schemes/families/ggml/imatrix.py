"""An importance matrix: how important the columns of each weight of a model are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from math import prod

from anamnesis.base.errors import UnsupportedError
from anamnesis.base.lazy import np
from anamnesis.schemes.core.codes import Importance

_F32_BYTES = 4
_EMBEDDINGS = "token_embd.weight"


@dataclass(frozen=True)
class Imatrix:
    """What a file of llama-imatrix holds."""

    file: str
    entries: Mapping[str, memoryview] = field(repr=False)
    datasets: Sequence[str] = ()
    n_chunks: int = 0
    unused: Mapping[str, int] = field(default_factory=dict, repr=False)

    @property
    def n_entries(self) -> int:
        """How many weights it speaks of."""
        return len(self.entries)

    def importance(self, name: str, shape: tuple[int, ...]) -> Importance | None:
        """Return the importance of a weight's columns; None if it has no entry for it."""
        # One of another size is refused, but for the embeddings', which goes unused, as in
        # llama-quantize. Where all columns of a matrix have importance 0, which would erase it,
        # they have 1: calibration never reached it.
        values = self.entries.get(name)
        if values is None:
            return None
        found, wanted = values.nbytes // _F32_BYTES, prod(shape[:-2]) * shape[-1]
        if found == wanted:
            return self._measured(name, values, shape[-1])
        if name == _EMBEDDINGS:
            return None
        raise UnsupportedError(
            f"{self.file}: is of another model: {name!r} has {found:,} values, and {wanted:,}"
            " columns in all its matrices"
        )

    def _measured(self, name: str, values: memoryview, cols: int) -> Importance:
        rows = np.frombuffer(values, np.float32).reshape(-1, cols)
        is_used = np.asarray(rows.any(1))
        n_zeros = int(np.count_nonzero(rows[is_used] == 0))
        n_unused = len(rows) - int(np.count_nonzero(is_used))
        if n_unused:
            values = np.where(is_used[:, None], rows, np.float32(1)).reshape(-1).view(np.uint8).data
        n_unmeasured = n_unused + self.unused.get(name, 0)
        return Importance(sha256(values).hexdigest(), values, n_unmeasured, n_zeros)
