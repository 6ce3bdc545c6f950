"""Whether quantising a model again gives the codes that another one holds."""

from __future__ import annotations

from collections import Counter
from glob import escape
from typing import NamedTuple

from anamnesis.base.dtypes import BLOCK_DTYPES, OUTPUT_DTYPES
from anamnesis.base.errors import UnsupportedError
from anamnesis.convert.compare.compare import Input
from anamnesis.convert.report.card import encoding_listed
from anamnesis.schemes.core.weight import Weight


class Wanted(NamedTuple):
    """What a conversion is asked for that is to give a model's own tensors."""

    to: str
    overrides: dict[str, str]


def wanted_of(model: Input) -> Wanted:
    """Return in what each weight of a model is, as `convert` takes it."""
    is_gguf = model.checkpoint.self_contained
    method = None if is_gguf else model.ledger.facts.method
    overrides: dict[str, str] = {}
    usual: Counter[str] = Counter()
    for name, weight in model.ledger.weights.items():
        own = weight.own_dtype
        if own is None:
            overrides[escape(name)] = encoding = _encoding(weight, method)
            usual[encoding] += 1
        elif own in OUTPUT_DTYPES.values():
            overrides[escape(name)] = own.name.lower()
    if not usual:
        raise UnsupportedError(f"{model.path}: nothing is quantised, so there are no codes")
    return Wanted(usual.most_common(1)[0][0], overrides)


def _encoding(weight: Weight, method: str | None) -> str:
    part = weight.parts[0]
    if part.dtype in BLOCK_DTYPES.values():
        return f"gguf-{part.dtype.name.lower()}"
    found = encoding_listed(method, weight.scheme)
    if found is None:
        raise part.unsupported(f"{weight.name!r} is {weight.scheme}, which is not written here")
    return found
