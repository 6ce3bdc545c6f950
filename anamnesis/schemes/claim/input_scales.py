"""Scales of a layer's inputs, which ModelOpt stores beside the weight.

    pre_quant_scale F32 | F16 | BF16 [cols], beside the weight

SmoothQuant and AWQ divide the columns of a weight by them before it is quantised. No ordinary model
multiplies its inputs, so that the weight alone makes a wrong model, and `weight * pre_quant_scale`
the right one. The weight comes out as ModelOpt's own `dequantize` gives it; the scales stop a
conversion, and pass beside the weight where all that is unknown may.
"""

from __future__ import annotations

from anamnesis.schemes.claim.facts import QuantFacts
from anamnesis.schemes.claim.ledger import Ledger
from anamnesis.schemes.claim.names import sibling

__all__ = ["refuse_input_scales"]

_NAME = "pre_quant_scale"


def refuse_input_scales(ledger: Ledger, facts: QuantFacts) -> None:
    """Refuse those whose weights were read, without these."""
    if (facts.method or "").lower() != "modelopt":
        return
    for scale in ledger.free():
        if scale.name.rpartition(".")[2] != _NAME:
            continue
        weight = ledger.weights.get(sibling(scale.name, "weight"))
        if weight is None or scale.dtype.kind != "float" or scale.shape != weight.shape[-1:]:
            continue
        error = scale.unsupported(
            f"{scale}: the layer's input must be multiplied by it, as no ordinary model does; "
            f"{weight.name} alone is not the original weight, but its columns times these are",
            remedy="allow_unknown=True passes them through as they are, beside the weights",
        )
        ledger.refuse([scale.name], error)
        ledger.apart.add(scale.name)
