"""Two models side by side: the function `compare`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Unpack

from anamnesis.base.arguments import checked
from anamnesis.base.levels import LevelName, resolve_level
from anamnesis.base.workers import Cancel, check_cancel, default_threads
from anamnesis.convert.compare.compare import Input
from anamnesis.convert.compare.compare import compare as compare_inputs
from anamnesis.convert.compare.comparison import Comparison
from anamnesis.convert.request.request import How, Progress
from anamnesis.model import Model
from anamnesis.opening import Where, parse

if TYPE_CHECKING:
    from anamnesis.opening import ParseOptions

__all__ = ["compare"]


@checked
def compare(
    a: Where | Model,
    b: Where | Model,
    *,
    values: bool = False,
    threads: int | None = None,
    level: LevelName | None = None,
    progress: Progress | None = None,
    cancel: Cancel | None = None,
    **options: Unpack[ParseOptions],
) -> Comparison:
    """Compare two models, in any formats and encodings, weight by weight.

    Weights are matched one by one: a Hugging Face directory is seen as llama.cpp sees it beside a
    GGUF (names, order of rows, stacks of experts); prefixes of names, single experts and stacks,
    tied heads and padded vocabularies are matched, and said.

    Parameters
    ----------
    a, b : path, address, bytes-like, file object or Model
        What `parse` takes, or what it returned.
    values : bool
        Decode and compare the values, in float32 and constant memory; what has the same bytes is
        not decoded. By default headers alone are compared.
    threads : int, optional
        By default one for each CPU, at most 8. All figures are the same for any number.
    level : str, optional
        Kernel level: `scalar`, `avx2`, …; by default the best that this CPU has.
    progress : function, optional
        Called with the bytes that are compared, and their number in all.
    cancel : threading.Event or alike, optional
        Its `is_set()` stops the call.
    **options
        Those of `parse`, for both.

    Returns
    -------
    Comparison
        `same` says whether nothing differs; `differing` has the weights that do, the worst first.

    Raises
    ------
    AnamnesisError, OSError, TypeError, ValueError
        As `parse` does; a weight that cannot be decoded is one that is `not compared`.
    Cancelled
        If `cancel` is set.
    """
    how = how_of(threads, level, progress, cancel)
    with opened(a, options) as first, opened(b, options) as second:
        inputs = [input_of(model) for model in (first, second)]
        return compare_inputs(inputs[0], inputs[1], first._limits, how if values else None)


def how_of(
    threads: int | None, level: LevelName | None, progress: Progress | None, cancel: Cancel | None
) -> How:
    """Return how values are read, with the usual threads and kernels where none are given."""
    check_cancel(cancel)
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    n = default_threads() if threads is None else threads
    return How(n, resolve_level(level), progress, cancel)


@contextmanager
def opened(where: Where | Model, options: ParseOptions) -> Iterator[Model]:
    """Open a model, unless it is one that is open already."""
    if isinstance(where, Model):
        where._check_open()
        yield where
        return
    with parse(where, **options) as model:
        yield model


def input_of(model: Model) -> Input:
    """Return a model and what it is called, as comparing and checking take it."""
    where = model._origin.where
    if isinstance(where, str):  # a path is absolute; here as seen from the working directory
        name = where.removeprefix(os.path.join(os.getcwd(), "")) or "."
    else:
        name = next(iter(model.files))
    return Input(name, model._checkpoint, model._ledger)
