"""Whether quantising a model again gives the codes that another one holds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from glob import escape
from typing import NamedTuple

from anamnesis.base.dtypes import BLOCK_DTYPES, OUTPUT_DTYPES
from anamnesis.base.errors import UnsupportedError
from anamnesis.convert.compare.compare import Input
from anamnesis.convert.report.card import encoding_listed
from anamnesis.schemes.core.weight import Weight

_GROUPS = re.compile(r"groups of (\d+)")


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
    scheme = weight.scheme
    found = encoding_listed(method, _GROUPS.sub("groups of 128", scheme))
    if found is None:
        raise part.unsupported(f"it is not known how to quantise {scheme} again")
    return "-".join([found, *_settings(weight, found)])


def _settings(weight: Weight, encoding: str) -> Iterator[str]:
    """Yield the words for settings of an encoding that a weight shows."""
    group = _GROUPS.search(weight.scheme)
    if group is not None:
        yield group[1]
    if encoding in ("bnb-nf4", "bnb-fp4"):
        if "double-quantised" in weight.scheme:
            yield "nested"
        yield weight.id.split("-")[2]  # values in a block
    if encoding == "fp8-block" and weight.parts[1].dtype.name == "F8_E8M0":
        yield "ue8m0"
