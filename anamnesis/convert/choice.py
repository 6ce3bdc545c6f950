"""What each weight of a model is written as, and what becomes of tensors that are none."""

from __future__ import annotations

from anamnesis.base.dropped import Dropped
from anamnesis.base.dtypes import DTYPES
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.stored import StoredTensor
from anamnesis.checkpoint.metadata import left_behind
from anamnesis.checkpoint.open import Checkpoint
from anamnesis.convert.plan import Account, OutputWeight
from anamnesis.convert.problems import first_of, unwritable_weights
from anamnesis.convert.request import Request
from anamnesis.formats.base import Writer
from anamnesis.schemes.base import Weight
from anamnesis.schemes.ledger import Claim
from anamnesis.schemes.plain import Plain, PlainEncoding, plain_dtype

__all__ = ["Choice"]

_ONLY_TOLD_OF = "unreadable, without bytes to pass on"


class Choice:
    """The weights to be written, in the order of the model, and the account of all others.

    Tensors with problems are passed on as they are if the request allows that, else left out.
    """

    def __init__(
        self, checkpoint: Checkpoint, claim: Claim, request: Request, writer: Writer
    ) -> None:
        self._lone_part = checkpoint.lone_part
        self._allow_unknown = request.allow_unknown
        unwritable = unwritable_weights(claim.weights.values(), writer)
        problems = {**claim.problems, **unwritable}
        stored = [claim.stored[name] for name in problems]
        passed = [tensor for tensor in stored if not _is_only_told_of(tensor)]
        left = [Dropped(t.name, _ONLY_TOLD_OF) for t in stored if _is_only_told_of(t)]
        if not request.allow_unknown:
            passed, left = [], []
        self._twice = [name for name in claim.problems if name in claim.weights]
        weights: list[Weight] = [
            *(w for name, w in claim.weights.items() if name not in unwritable),
            *map(_as_it_is, passed),
        ]
        self.weights = [
            OutputWeight(w, PlainEncoding(plain_dtype(w, request.dtype, cast=request.cast_all)))
            for w in weights
        ]
        self.account = Account(
            n_in=len(claim.stored),
            dropped=[
                *claim.dropped,
                *left,
                *left_behind(checkpoint.shards.values()),
                *checkpoint.left_out,
            ],
            passed=tuple(tensor.name for tensor in passed),
            problems=problems,
        )

    @property
    def dense(self) -> bool:
        """Whether nothing that is written is quantised any more."""
        return not self.account.problems

    def check(self) -> None:
        """Refuse what may not pass.

        Raises
        ------
        UnsupportedError, ParseError
            If a stored tensor cannot be accounted for or written, or the file seems to be a part
            of a model, and the request does not let it pass.
        """
        if self.account.problems and not self._allow_unknown:
            raise first_of(self.account.problems)
        if self._lone_part is not None and not self._allow_unknown:
            raise UnsupportedError(self._lone_part)
        for name in self._twice:
            raise UnsupportedError(f"a weight and a tensor that is passed on are {name!r}")


def _is_only_told_of(tensor: StoredTensor) -> bool:
    """Tell whether a stored tensor that nobody can decode has no bytes of its own either.

    So it is with torch's sparse and quantised tensors, which are made of others.
    """
    return tensor.dtype.name not in DTYPES and not tensor.n_bytes


def _as_it_is(tensor: StoredTensor) -> Plain:
    """Return a stored tensor as a weight; as its bytes, if safetensors have no such dtype."""
    if tensor.dtype.name not in DTYPES:
        tensor = tensor._replace(dtype=DTYPES["U8"], shape=(tensor.n_bytes,))
    return Plain(tensor.name, tensor.shape, (tensor,))
