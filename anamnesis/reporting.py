"""A model, or two side by side, as a page: the function `report`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from anamnesis.base.arguments import checked
from anamnesis.base.cancel import Cancel, check_cancel
from anamnesis.base.levels import LevelName, resolve_level
from anamnesis.base.workers import default_threads
from anamnesis.comparing import compare, input_of, opened
from anamnesis.convert.compare.comparison import Comparison
from anamnesis.convert.overview.overview import Overview, overview
from anamnesis.convert.request.request import How, Progress

if TYPE_CHECKING:
    from anamnesis.model import Model
    from anamnesis.opening import ParseOptions, Where

__all__ = ["report"]


@checked
def report(
    a: Where | Model,
    b: Where | Model | None = None,
    *,
    values: bool = False,
    threads: int | None = None,
    level: LevelName | None = None,
    progress: Progress | None = None,
    cancel: Cancel | None = None,
    **options: Unpack[ParseOptions],
) -> Overview | Comparison:
    """Look at a model, or compare two: what a notebook shows as a page, and `to_html` returns.

    Parameters
    ----------
    a, b : path, address, bytes-like, file object or Model
        What `parse` takes, or what it returned. With `b`, as `compare`.
    values : bool
        Read the values, too: histograms of scales, zeros, saturation; of two models how far they
        lie apart. By default headers alone are read.
    threads : int, optional
    level : str, optional
    progress : function, optional
    cancel : threading.Event or alike, optional
        As of `compare`.
    **options
        Those of `parse`.

    Returns
    -------
    Overview or Comparison
        Their `to_html()` is one page of HTML: no script, nothing fetched.

    Raises
    ------
    AnamnesisError, OSError, TypeError, ValueError
        As `parse` does.
    Cancelled
        If `cancel` is set.
    """
    if b is not None:
        return compare(
            a,
            b,
            values=values,
            threads=threads,
            level=level,
            progress=progress,
            cancel=cancel,
            **options,
        )
    check_cancel(cancel)
    how = How(threads or default_threads(), resolve_level(level), progress, cancel)
    with opened(a, options) as model:
        return overview(input_of(model), model.inspect(), model._limits, how, values=values)
