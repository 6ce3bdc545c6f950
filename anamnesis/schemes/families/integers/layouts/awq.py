"""AWQ's GEMM layout: 4 bits, a zero point and a scale for each group.

    qweight I32  [in features, out features / 8]: a word holds eight out features, as `qzeros` does,
                 0 2 4 6 1 3 5 7 of them from its lowest bits on
    qzeros  I32  [groups, out features / 8]
    scales  F16 | BF16 | F32  [groups, out features]

    result[o, i] = round((float32)(code[i, o] - zero[g, o]) * float32(scale[g, o]))

The integers are those of AutoAWQ's `packing_utils.dequantize_gemm`, which multiplies in the dtype
of `scales`; here the product is in float32. Shapes and dtypes show its other layouts:
GEMV and GEMV-fast in `awq_gemv.py`, Marlin in `marlin.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.encoding import Encoding, Setting, spelt
from anamnesis.schemes.core.layout import Config, Layers, Shapes
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.families.integers.checks import check_one_of
from anamnesis.schemes.families.integers.layouts import awq_gemv, gptq_and_awq
from anamnesis.schemes.families.integers.words import PackedWeight, Packing
from anamnesis.schemes.views.kinds import Words

PACKING = Packing("AWQ4", 4, along_rows=True)
_WORD_BITS = 32
_IN_WORD = _WORD_BITS // PACKING.bits

# Where AWQ could not fold scales into the weights before (after GELU), it divides activations by
# them: a separate module does, which ordinary models lack.
_SCALED_ACTIVATIONS = (".act.scales", ".gelu_impl.scales")

# Types of models whose activations AWQ scales by numbers that come from data, and are parameters
# which programs look for (`AWQ_SCALES_MAPPINGS` of transformers' integrations/awq.py).
_SCALED = frozenset(
    {"starcoder2", "falcon", "RefinedWebModel", "mpt", "gptj", "gpt_neox", "gpt_bigcode", "bloom"}
)


@dataclass(frozen=True)
class Gemm(gptq_and_awq.InModules):
    """The GEMM layout, with zero points, as AutoAWQ packs it."""

    group_size: int = 128
    bits: int = PACKING.bits

    fields = gptq_and_awq.InModules.fields[:3]
    is_across = True

    def leaves(self, shapes: Shapes, config: Config) -> Mapping[str, str]:
        kind = config.get("model_type")
        if kind in _SCALED:
            return dict.fromkeys(shapes, f"AWQ scales activations of {kind}, by what data says")
        return super().leaves(shapes, config)

    def weight(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        return PackedWeight(name, shape, parts, PACKING, False, self.group_size)

    def encoding_of(self, words: Words, group_size: int) -> Encoding:
        return _encoding(Gemm(group_size))

    def declare(self, layers: Layers) -> dict[str, Any]:
        from anamnesis.schemes.libraries.mtp import plain_drafts

        drafts = [f"{name}." for name in plain_drafts(layers)]
        return {
            "quant_method": "awq",
            "bits": PACKING.bits,
            "group_size": self.group_size,
            "zero_point": True,
            "version": "gemm",
            "modules_to_not_convert": [*layers.plain, *drafts] or None,
        }


SETTINGS = (Setting("group_size", 128, form="number", ids_alone={-1: "channel"}),)


def _encoding(layout: Gemm) -> Encoding:
    return Encoding(spelt("awq-4bit", vars(layout), SETTINGS), layout)


def encoding(group_size: int = 128) -> Encoding:
    """Return integers with zero points, as AutoAWQ's round-to-nearest gives and packs them."""
    from anamnesis.schemes.families.integers.encode import Columns

    check_one_of("group_size", group_size, gptq_and_awq.GROUP_SIZES)
    return replace(_encoding(Gemm(group_size)), codes=Columns(PACKING.bits, group_size, "half"))


def find_all(ledger: Ledger, facts: QuantFacts) -> None:
    """Take what GPTQ left of the modules with `qweight`, `qzeros` and `scales`, or refuse it."""
    found = False
    for parts in gptq_and_awq.gather(ledger, facts):
        with ledger.refusing(part.name for part in parts.stored):
            ledger.take(awq_gemv.find(parts, facts) or weight_of(parts, facts))
            found = True
    for scales in ledger.free() if found else ():
        if scales.name.endswith(_SCALED_ACTIVATIONS):
            error = scales.unsupported(
                f"{scales}: AWQ divides activations by these, as no ordinary model does",
                remedy="allow_unknown=True passes them through as they are",
            )
            ledger.refuse([scales.name], error)


def weight_of(parts: gptq_and_awq.Parts, facts: QuantFacts) -> PackedWeight:
    """Return the weight that parts make, or raise what speaks against it."""
    gptq_and_awq.check_dtypes(parts)
    n_words, (n_groups, n_out) = parts.qweight.shape[1], parts.scales.shape
    if (parts.qzeros.shape, n_words * _IN_WORD) != ((n_groups, n_words), n_out):
        # All but GEMM in 4 bits is refused, if possible by name.
        if n_words in (2 * n_out, 4 * n_out):
            raise parts.unread("Marlin with zero points", facts)
        bits, rest = divmod(_WORD_BITS * n_words, max(n_out, 1))
        if parts.qzeros.shape == (n_groups, n_words) and 1 <= bits <= 16 and not rest:
            raise parts.unread(f"AWQ in {bits} bits", facts)
        raise parts.mismatch("the shapes fit neither GPTQ nor AWQ")
    gptq_and_awq.check_layout(parts, facts)
    if facts.bits and PACKING.bits not in facts.bits:
        widths = " or ".join(str(bits) for bits in sorted(facts.bits))
        raise parts.mismatch(f"the shapes are those of AWQ in 4 bits, but the config says {widths}")
    if parts.g_idx is not None:
        raise parts.refusal("AWQ has no g_idx")
    in_features = parts.qweight.shape[0]
    size = gptq_and_awq.find_group_size(parts, in_features, facts.group_sizes)
    shape = (parts.scales.shape[1], in_features)
    return PackedWeight(parts.weight_name, shape, parts.stored, PACKING, False, size)
