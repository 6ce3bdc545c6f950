"""ZIP archives: NumPy's or PyTorch's, recognised by the names of their members."""

from __future__ import annotations

from anamnesis.base.errors import ParseError
from anamnesis.base.limits import Budget
from anamnesis.base.source import Source
from anamnesis.formats.base import Container, Opening
from anamnesis.formats.torch.read import parse as parse_pth
from anamnesis.formats.torch.read import pickles_of
from anamnesis.formats.zip.members import read_directory

_KERAS_CONFIG, _KERAS_WEIGHTS = "config.json", "model.weights.h5"


def parse_archive(source: Source, budget: Budget, opening: Opening) -> Container:
    """Parse an archive of arrays or of tensors."""
    directory = read_directory(source, budget)
    pickles = pickles_of(directory)
    if pickles:
        return parse_pth(directory, pickles, budget, allow_foreign=opening.allow_foreign)
    from anamnesis.formats.numpy import npz

    if npz.holds_arrays(directory):
        return npz.parse(directory, budget, opening.void_dtype)
    keras = _KERAS_CONFIG in directory.entries and _KERAS_WEIGHTS in directory.entries
    what = "a Keras archive" if keras else "a ZIP archive without tensors"
    remedy = "export the weights as safetensors" if keras else "unpack it and pass the model inside"
    raise ParseError(
        f"this is {what}, not a model file", offset=0, source=source.name, remedy=remedy
    )


def archive_id(source: Source) -> str | None:
    """Return the id of an archive's format, by the names of its members; None if of neither."""
    directory = read_directory(source, Budget())
    if pickles_of(directory):
        return "torch"
    from anamnesis.formats.numpy import npz

    return "npz" if npz.holds_arrays(directory) else None
