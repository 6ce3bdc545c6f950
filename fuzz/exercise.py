"""What every fuzzer of a parser does with an input, and what must hold whatever the input is."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from typing import Any

from safetensors import deserialize

import anamnesis as an
from anamnesis.cli.parse import listing, listing_dict


def exercise(
    where: Any, limits: an.ParseLimits | None = None, *, folds: bool = False
) -> an.Model | None:
    """Parse, inspect, read each tensor, remember; return the model, None if it was refused.

    Scales of inputs are multiplied into weights if it `folds`.
    Raises whatever is neither a result nor an `AnamnesisError`: AssertionError if results disagree.
    """
    try:
        model = an.parse(where, limits=limits, fold_pre_quant_scale=folds)
    except an.AnamnesisError:
        return None
    _check_account(model)
    inspection = model.inspect()
    assert json.dumps(inspection.to_dict())
    with suppress(an.AnamnesisError):
        assert json.dumps(listing_dict(model))
        assert all(line.isprintable() for line in listing(model, "", metadata=True))
    assert str(inspection).isprintable() or "\n" in str(inspection)
    for key in model.metadata:
        with suppress(an.AnamnesisError):
            assert model.metadata[key] is not None
    for name in _readable(model):
        _read(model, name)
    for name, problem in model.problems.items():
        assert isinstance(problem, an.AnamnesisError), name
        assert name in model
    for shown in (model, inspection):
        assert shown._repr_html_().isprintable()
    _remember(model)
    return model


def _check_account(model: an.Model) -> None:
    """Each stored tensor is a part of one weight, or dropped, or a problem."""
    parts = [part.name for name in _readable(model) for part in model[name].parts]
    dropped = [d.name for d in model._ledger.dropped]
    assert sorted([*parts, *dropped, *model.problems]) == sorted(model.stored)


def _readable(model: an.Model) -> list[str]:
    return [name for name in model if name not in model.problems]


def _read(model: an.Model, name: str) -> None:
    tensor = model[name]
    with suppress(an.AnamnesisError):
        array = tensor.numpy()
        assert array.dtype == tensor.dtype, name
        if tensor.shape and tensor.shape[0] and array.shape == tensor.shape:
            assert tensor[-1].tobytes() == array[-1].tobytes(), name
        if tensor.parts[0].dtype.kind == "block" or tensor.parts[0].dtype.bits >= 8:
            assert array.shape == tensor.shape, name


def _remember(model: an.Model) -> None:
    """The output must be what the reference implementation reads, with every weight in it."""
    if model.problems:
        with suppress(an.AnamnesisError):
            model.remember_to_bytes(threads=1)
            raise AssertionError("problems must stop a conversion")
    out = io.BytesIO()
    try:
        report = model.remember(out, threads=1, allow_unknown=True)
    except an.AnamnesisError:
        return
    written = {name for name, _ in deserialize(out.getvalue())}
    dropped = {dropped.name for dropped in report.dropped}
    assert written == {*model} - dropped
    # A weight is dropped only where there are no bytes of it to pass on.
    assert all(0 in model[name].shape for name in dropped & set(_readable(model)))
