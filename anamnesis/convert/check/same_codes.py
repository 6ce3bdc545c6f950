"""Whether quantising a model again gives the codes that another one holds."""

from __future__ import annotations

import re
from collections import Counter
from glob import escape

from anamnesis.base.dtypes import BLOCK_DTYPES, OUTPUT_DTYPES
from anamnesis.base.errors import UnsupportedError
from anamnesis.convert.compare.compare import Input
from anamnesis.convert.report.card import encoding_listed
from anamnesis.schemes.core.weight import Weight

_GROUPS = re.compile(r"groups of (\d+)")


def wanted_of(model: Input) -> tuple[str, dict[str, str]]:
    """Return the target and the overrides by which `convert` gives a model's own tensors."""
    method = None if model.checkpoint.self_contained else model.ledger.facts.method
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
    return usual.most_common(1)[0][0], overrides


def _encoding(weight: Weight, method: str | None) -> str:
    part = weight.parts[0]
    if part.dtype in BLOCK_DTYPES.values():
        return f"gguf-{part.dtype.name.lower()}"
    scheme = weight.scheme
    found = encoding_listed(method, _GROUPS.sub("groups of 128", scheme))
    if found is None:
        raise part.unsupported(f"it is not known how to quantise {scheme} again")
    words = [found]  # and those for settings that the weight shows
    group = _GROUPS.search(scheme)
    if group is not None:
        words.append(group[1])
    if found in ("bnb-nf4", "bnb-fp4"):
        words += ["nested"] if "double-quantised" in scheme else []
        words.append(weight.id.split("-")[2])  # values in a block
    if found == "fp8-block" and weight.parts[1].dtype.name == "F8_E8M0":
        words.append("ue8m0")
    return "-".join(words)
