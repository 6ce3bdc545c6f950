"""Scales of inputs that lie beside the weight, of ModelOpt and in ComfyUI's NVFP4.

    pre_quant_scale F32 | F16 | BF16 [cols], beside the weight

SmoothQuant and AWQ divide the columns of a weight by them before it is quantised. No ordinary model
multiplies its inputs, so that the weight alone makes a wrong model, and `weight * pre_quant_scale`
the right one: that comes out where it is asked for. Else the weight comes out as ModelOpt's own
`dequantize` gives it; the scales stop a conversion, and pass beside the weight where all that is
unknown may. What ModelOpt has folded into the norm before a layer is not stored, nor asked for.
"""

from __future__ import annotations

from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.detect.markers import has_marker
from anamnesis.schemes.detect.not_weights import sibling
from anamnesis.schemes.views.columns import TimesColumns
from anamnesis.schemes.views.transposed import Transposed

_NAME = "pre_quant_scale"
_ADDED = ("svdquant_lora_a", "svdquant_lora_b")  # whose product SVDQuant adds to the weight's


def settle_input_scales(ledger: Ledger, facts: QuantFacts) -> None:
    """Fold them into the weights that were read, or refuse them, without these."""
    are_all = bool(facts.tiles) or (facts.method or "").lower() == "modelopt"
    for scale in ledger.called(_NAME):
        is_said = scale.name.rpartition(".")[0] in facts.comfy_layers
        if not (are_all or is_said or has_marker(scale.name, ledger)):
            continue
        weight = ledger.weights.get(sibling(scale.name, "weight"))
        if weight is None or scale.dtype.kind != "float" or scale.shape != weight.shape[-1:]:
            continue
        is_alone = not any(sibling(scale.name, name) in ledger.stored for name in _ADDED)
        is_codes = weight.own_dtype is None and not isinstance(weight, Transposed)
        can_fold = is_alone and is_codes and scale.dtype.name in ("F32", "F16", "BF16")
        if facts.folds and can_fold:
            parts = (*weight.parts, scale)
            ledger.extend(TimesColumns(weight.name, weight.shape, parts, (weight,)))
            continue
        folds = f"fold_{_NAME}=True multiplies these by it, as a plain model needs them; "
        passes = "allow_unknown=True passes them through as they are, beside the weights"
        error = scale.unsupported(
            f"{scale}: the layer's input must be multiplied by it, as no ordinary model does; "
            f"{weight.name} alone is not the original weight, but its columns times these are",
            remedy=f"{folds if can_fold else ''}{passes}",
        )
        ledger.refuse([scale.name], error)
        ledger.apart.add(scale.name)
