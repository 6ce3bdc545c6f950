"""A model under other names than it is stored by, and patterns of either."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from anamnesis.base.patterns import UnmatchedError, chooser, unfitting
from anamnesis.checkpoint.open import Checkpoint
from anamnesis.convert.request.request import Request
from anamnesis.schemes.detect.ledger import Ledger


class Seen(NamedTuple):
    """A model as it will be written, and what that makes of the request."""

    checkpoint: Checkpoint
    ledger: Ledger
    request: Request
    names: Mapping[str, tuple[str, ...]]
    otherwise: tuple[str, ...] = ()

    def spelt(self, request: Request) -> Request:
        """Return a request, whose patterns may also be of the names that the source has."""
        overridden = [pattern for pattern, _ in request.overrides]
        globs = dict.fromkeys((*request.include, *request.exclude, *overridden))
        spelt = {glob: self._spelt(glob) for glob in unfitting(globs, list(self.ledger.weights))}
        spelt = {glob: names for glob, names in spelt.items() if names}
        # A name without wildcards means that weight, even if a mix leaves it.
        whole = {glob: name for glob, (name, *more) in spelt.items() if not more}
        whole = {glob: name for glob, name in whole.items() if glob in self.names[name]}
        overrides = tuple([(whole.get(glob, glob), one) for glob, one in request.overrides])
        return replace(request, spelt=spelt, overrides=overrides)

    def _spelt(self, glob: str) -> dict[str, None]:
        """Return the weights that a glob matches by the names of what they are made of."""
        fits, found = chooser((glob,)), []
        for name, stored in self.names.items():
            n = sum(map(fits, stored))
            if 0 < n < len(stored):
                raise ValueError(
                    f"{glob!r} matches {n:,} of the {len(stored):,} tensors that become {name!r}"
                )
            if n:
                found.append(name)
        return dict.fromkeys(found)

    def sources(self, globs: Sequence[str]) -> set[str]:
        """Return what alone the weights are made of whose names match."""
        for glob in unfitting(globs, list(self.ledger.weights)):
            raise UnmatchedError("drop", glob)
        goes = chooser(globs)
        gone = {one for name, stored in self.names.items() if goes(name) for one in stored}
        return gone.difference(*[some for name, some in self.names.items() if not goes(name)])

    @property
    def put_together(self) -> dict[str, int]:
        """Tensors that are made of several stored ones, and of how many."""
        return {name: len(stored) for name, stored in self.names.items() if len(stored) > 1}

    @property
    def taken_apart(self) -> dict[str, int]:
        """Stored tensors that several are made of, and how many."""
        uses = Counter(stored[0] for stored in self.names.values() if len(stored) == 1)
        return {name: n for name, n in uses.items() if n > 1}
