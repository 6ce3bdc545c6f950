"""Whether a model is whole and sane: the function `check`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Unpack

from anamnesis.base.arguments import Lora, checked
from anamnesis.base.levels import LevelName
from anamnesis.base.workers import Cancel
from anamnesis.comparing import how_of, input_of, opened
from anamnesis.convert.check.check import check as check_input
from anamnesis.convert.check.findings import Check, Kind
from anamnesis.convert.request.request import How, Progress
from anamnesis.opening import parse

if TYPE_CHECKING:
    from anamnesis.model import Model
    from anamnesis.opening import ParseOptions, Where

__all__ = ["check"]


@checked
def check(
    where: Where | Model,
    *,
    values: bool = True,
    manifest: str | os.PathLike[str] | None = None,
    same_codes: str | os.PathLike[str] | None = None,
    lora: Lora | None = None,
    threads: int | None = None,
    level: LevelName | None = None,
    progress: Progress | None = None,
    cancel: Cancel | None = None,
    **options: Unpack[ParseOptions],
) -> Check:
    """Check whether a model is whole and sane.

    Shapes and names against config, or a GGUF's header; shards against their index; files in the
    hub's cache against their SHA-256; values for NaNs, infinities, zeros, constants and sizes that
    no training gives; scales for zeros and NaNs; tied heads against the embeddings; copies.

    Parameters
    ----------
    where : path, address, bytes-like, file object or Model
        What `parse` takes, or what it returned.
    values : bool
        Read all values; else headers alone.
    manifest : path, optional
        A file of hashes, of the bytes of each tensor and of the values of each weight. It is
        written if there is none; else the model is compared with it. A weight that is stored in
        another encoding and decodes to the same values is a note.
    same_codes : path, optional
        The model before it was quantised: quantising it again must give this one's bytes.
    lora : path, or mapping of paths to weights, optional
        Adapters that must fit the model: each key is used, and each shape fits.
    threads : int, optional
    level : str, optional
    progress : function, optional
    cancel : threading.Event or alike, optional
        As of `compare`.
    **options
        Those of `parse`.

    Returns
    -------
    Check
        `ok` says whether there are no problems; `findings` has all of them, and notes.

    Raises
    ------
    AnamnesisError, OSError, TypeError, ValueError
        As `parse` does.
    ParseError
        If the manifest is none, or damaged.
    UnsupportedError
        If a manifest is asked for, and xxhash is not installed.
    Cancelled
        If `cancel` is set.
    """
    how = how_of(threads, level, progress, cancel)
    path = None if manifest is None else os.fspath(manifest)
    others: dict[Kind, Callable[[], Iterable[str]]] = {}
    with opened(where, options) as model:

        def unfit() -> Iterable[str]:
            model.plan("f32", lora=lora)
            return ()

        if lora is not None:
            others["lora"] = unfit
        if same_codes is not None:
            others["codes"] = partial(_unlike, model, os.fspath(same_codes), how)
        return check_input(
            input_of(model), model._limits, how, values=values, manifest=path, others=others
        )


def _unlike(model: Model, source: str, how: How) -> Iterable[str]:
    """Return the tensors that quantising a model again does not give, in words."""
    from anamnesis.convert.check.same_codes import wanted_of
    from anamnesis.convert.write.same import unlike_tensors

    own = input_of(model)
    to, overrides = wanted_of(own)
    with parse(source) as whole:
        plan = whole.plan(to, overrides=overrides)
        return unlike_tensors(plan, own.path, how._replace(progress=None))[0].values()
