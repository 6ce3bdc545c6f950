"""ZIP archives: NumPy's or PyTorch's, told by the names of their members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anamnesis.errors import ParseError
from anamnesis.formats.pth import parse as parse_pth
from anamnesis.formats.pth import pickles_of
from anamnesis.formats.stored import Container
from anamnesis.formats.zip import read_directory
from anamnesis.limits import Budget
from anamnesis.source import Source

if TYPE_CHECKING:
    from anamnesis.formats import Opening

__all__ = ["parse_archive"]


def parse_archive(source: Source, budget: Budget, opening: Opening) -> Container:
    """Parse an archive of arrays or of tensors.

    Raises
    ------
    ParseError
        If it is malformed, or neither.
    UnsupportedError, DisallowedGlobal, LimitExceeded
        As `parse_container`.
    """
    directory = read_directory(source, budget)
    pickles = pickles_of(directory)
    if pickles:
        return parse_pth(directory, pickles, budget, allow_foreign=opening.allow_foreign)
    from anamnesis.formats import npz  # only here, for the sake of a quick start

    if npz.holds_arrays(directory):
        return npz.parse(directory, budget, opening.void_dtype)
    raise ParseError(
        "this is a ZIP archive of neither NumPy nor PyTorch, not safetensors",
        offset=0,
        source=source.name,
    )
