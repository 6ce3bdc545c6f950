"""A model, or two side by side, as a page: the function `report`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from anamnesis.base.arguments import checked
from anamnesis.base.levels import LevelName
from anamnesis.base.workers import Cancel
from anamnesis.comparing import how_of, input_of, opened
from anamnesis.convert.compare.compare import compare
from anamnesis.convert.overview.page import counted, overview, overview_page, pair_page
from anamnesis.convert.report.html_parts import Page
from anamnesis.convert.request.request import Progress
from anamnesis.model import Model

if TYPE_CHECKING:
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
) -> Page:
    """Look at a model, or at two side by side, as a page.

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
    Page
        What a notebook shows; its `to_html()` is one file of HTML: no script, nothing fetched.

    Raises
    ------
    AnamnesisError, OSError, TypeError, ValueError
        As `parse` does.
    Cancelled
        If `cancel` is set.
    """
    how = how_of(threads, level, progress, cancel)
    with opened(a, options) as first:
        of_a, limits = input_of(first), first._limits
        if b is None:
            return overview_page(overview(of_a, first.inspect(), limits, how, values=values))
        with opened(b, options) as second:
            inputs = of_a, input_of(second)
            compared = compare(*inputs, limits, how if values else None)
            return pair_page(compared, *[counted(one, how) for one in inputs if values])
