"""Which stored tensors are 6-bit floats, and which scales belong to them."""

from __future__ import annotations

from typing import NamedTuple

from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.layout import Field
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.families.fp6.weight import BYTES_PER_SCALE, KINDS, Mxfp6Weight, mxfp6

_POWERS = ("U8", "F8_E8M0")


class Mxfp6Layout(NamedTuple):
    """One producer's way."""

    producer: str
    fields: tuple[Field, Field]
    kind: str = ""


LAYOUTS = (
    Mxfp6Layout(
        "Quark",
        (
            Field("codes", "{module}weight", ("U8",)),
            Field("scales", "{module}weight_scale", _POWERS),
        ),
    ),
    Mxfp6Layout(
        "compressed-tensors",
        (
            Field("codes", "{module}weight_packed", ("U8",)),
            Field("scales", "{module}weight_scale", _POWERS),
        ),
        "fp6_e2m3",
    ),
)


def find_all(ledger: Ledger, facts: QuantFacts) -> None:
    """Take all weights of 6-bit floats with their scales."""
    ledger.take_found({"U8": [_find]}, facts)


def _find(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> Mxfp6Weight | None:
    for layout in LAYOUTS:
        own, beside = layout.fields
        name = own.weight_of(codes.name)
        scale = None if name is None else ledger.find(beside.named(name))
        if name is None or scale is None or scale.dtype.name not in beside.dtypes:
            continue
        if len(codes.shape) < 2 or scale.shape[-1:] == () or codes.n_elements == 0:
            return None
        if codes.shape[-1] != BYTES_PER_SCALE * scale.shape[-1]:
            return None
        kinds = [layout.kind] if layout.kind else [k for k in KINDS if k in facts.code_dtypes]
        if len(kinds) != 1:
            raise codes.unsupported(
                f"{codes} may hold {' or '.join(KINDS)}; say which with dtype of weight in "
                "quantization_config of config.json"
            )
        if scale.shape[:-1] != codes.shape[:-1]:
            grid = [*codes.shape[:-1], codes.shape[-1] // BYTES_PER_SCALE]
            raise scale.misshapen(str(grid), codes)
        return mxfp6(name, codes, scale, kinds[0], layout.producer)
    return None
