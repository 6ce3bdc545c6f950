"""MLX's affine integers of 1 to 8 bits.

    weight U32 [..., rows, cols * bits / 32], a dense stream of bits
    scales, biases F32 | F16 | BF16 [..., rows, groups], of 32, 64 or 128 columns

    result = round(float32(float32(code * scale) + bias))

On a CPU, MLX computes in the dtype of its scales: with float32 ones it gives these bits; with
others product and sum are rounded to their dtype, and differ in the last bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.encoding import Encoding, Setting, spelt
from anamnesis.schemes.core.layout import Field, Layers, Repack, missing, stored_parts
from anamnesis.schemes.core.rounding import Rounding
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.families.integers.checks import check_one_of, check_scale_dtype
from anamnesis.schemes.families.integers.weight import IntegerWeight
from anamnesis.schemes.libraries.libraries import OfMlx
from anamnesis.schemes.views.kinds import Integers, Rows

_REFERENCE = Rounding(("products", "sums"))

_BITS = (1, 2, 3, 4, 5, 6, 8)
# What read what the layers of a transformer hand on, and the tables of it.
_OF_HIDDEN = frozenset(
    {"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "embed_tokens", "lm_head"}
)
WIDTHS = (2, 3, 4, 5, 6, 8)  # that are written
GROUP_SIZES = (32, 64, 128)


@dataclass(frozen=True)
class InGroups(OfMlx):
    """Codes with a scale and a bias for each group of a row."""

    bits: int = 4
    group_size: int = 64

    fields: ClassVar[tuple[Field, ...]] = (
        Field("codes", "{module}weight", ("U32",)),
        Field("scales", "{module}scales"),
        Field("biases", "{module}biases"),
    )
    takes = Rows
    needs_config: ClassVar[bool] = True  # shapes leave bits and groups open

    def weight(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        kernel, block = f"PACKED{self.bits}", (1, self.group_size)
        return IntegerWeight(name, shape, parts, kernel, block, biases=parts[2], producer="MLX")

    def view(self, weight: Weight) -> Rows | Integers | None:
        rows, ours = weight.view(Rows), (self.bits, 0, False)
        if rows is None or (rows.bits, rows.zero, rows.is_signed) != ours:
            return weight.view(Integers)
        is_like_ours = rows.biases is not None and rows.group in GROUP_SIZES
        return rows if is_like_ours else weight.view(Integers)

    def write(self, view: Rows | Integers, encoding: Encoding) -> Repack | None:
        if isinstance(view, Integers):
            if view.bits > self.bits:
                return None
            from anamnesis.schemes.views.integer_casts import as_rows, in_groups, with_biases

            own = min(view.group, view.shape[-1])
            sizes = [size for size in (self.group_size, *reversed(GROUP_SIZES)) if own % size == 0]
            size = own if own in GROUP_SIZES else next(iter(sizes), GROUP_SIZES[0])
            if view.shape[-1] % size:
                raise view.refused(f"rows of {view.shape[-1]:,} are not in whole groups of {size}")
            view = as_rows(with_biases(in_groups(view, size)), self.bits)
        assert view.biases is not None
        parts = {"codes": view.codes, "scales": view.scales, "biases": view.biases}
        made = _encoding(replace(self, group_size=view.group))
        return Repack((made,), self.moved(view.name, parts), is_cast=view.is_cast)

    def declare(self, layers: Layers) -> dict[str, Any]:
        return {"group_size": self.group_size, "bits": self.bits, "mode": "affine"}


# --- encodings --------------------------------------------------------------------------------

SETTINGS = (Setting("group_size", 64, form="number"),)


def _encoding(layout: InGroups) -> Encoding:
    return Encoding(spelt(f"mlx-{layout.bits}bit", vars(layout), SETTINGS), layout)


def encoding(bits: int = 4, group_size: int = 64) -> Encoding:
    """Return integers with a scale and a bias for each group, as `mx.quantize` gives them."""
    from anamnesis.schemes.families.integers.encode import Affine

    check_one_of("group_size", group_size, GROUP_SIZES)
    check_one_of("bits", bits, WIDTHS)
    layout = InGroups(bits, group_size)
    return replace(_encoding(layout), codes=Affine(bits, group_size))


# --- reading ----------------------------------------------------------------------------------


def find(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> IntegerWeight | None:
    """Return the weight that codes are of, or None if it is of another kind."""
    module, _, last = codes.name.rpartition(".")
    if last != "weight" or len(codes.shape) < 2:
        return None
    found = stored_parts(InGroups.fields, codes.name, ledger.find)
    scales, biases = found.get("scales"), found.get("biases")
    if scales is None and biases is None:
        return None
    is_given = scales is None or scales.dtype.kind == "float"
    for field in missing(InGroups.fields, found) if is_given else ():
        raise codes.unsupported(
            f"{codes} is in MLX's affine integers, but {field.named(codes.name)} is missing; give "
            "the whole directory if it lies in another shard"
        )
    if scales is None or biases is None:
        return None
    given = facts.layers.get(module, facts.layers.get(""))
    weight = weight_of(codes, scales, biases, given)
    if module.rpartition(".")[2] in _OF_HIDDEN:
        _check_width(weight, facts)
    return weight


def _check_width(weight: IntegerWeight, facts: QuantFacts) -> None:
    """Refuse rows of a width that the config has not, where other bits give one that it has."""
    codes, scales = weight.parts[:2]
    cols = weight.shape[-1]
    if cols in facts.sizes or not facts.hidden_sizes:
        return
    for bits, size in _fitting(codes, scales):
        if scales.shape[-1] * size in facts.hidden_sizes:
            given = _in_words((weight.bits, weight.block[1]))
            other = f"{_in_words((bits, size))} they have {scales.shape[-1] * size:,}"
            raise codes.malformed(
                f"{codes} has rows of {cols:,} values in {given}, a size that the config does not "
                f"have; in {other}, which it has",
                remedy="say so of this layer in quantization of config.json",
            )


def weight_of(
    codes: StoredTensor,
    scales: StoredTensor,
    biases: StoredTensor,
    given: tuple[int, int] | None,
) -> IntegerWeight:
    """Return the weight of three parts, with bits and group size if they are known."""
    check_scale_dtype(scales, codes)
    if scales.shape[:-1] != codes.shape[:-1] or 0 in codes.shape or 0 in scales.shape:
        raise scales.misshapen(f"[{', '.join(map(str, codes.shape[:-1]))}, groups]", codes)
    if biases.shape != scales.shape or biases.dtype != scales.dtype:
        raise biases.misshapen(f"{scales.describe()}, as of {scales.name},", codes)
    # Of bits and group sizes that explain the shapes, those that are declared.
    fitting = _fitting(codes, scales)
    if not fitting:
        raise scales.misshapen("a scale for each 32, 64 or 128 codes", codes)
    if given not in fitting and len(fitting) > 1:
        *some, last = map(_in_words, fitting)
        but = f", and not {_in_words(given)}, as the config has it" if given else ""
        raise codes.unsupported(
            f"{codes} may hold {', '.join(some)} or {last}{but}; say which with bits and group_size"
            " in quantization of config.json"
        )
    bits, size = given if given and given in fitting else fitting[0]
    shape = (*codes.shape[:-1], scales.shape[-1] * size)
    own = codes.name, shape, (codes, scales, biases), f"PACKED{bits}", (1, size)
    return IntegerWeight(*own, biases=biases, producer="MLX", reference=_REFERENCE)


def _fitting(codes: StoredTensor, scales: StoredTensor) -> list[tuple[int, int]]:
    """Return the bits and group sizes that explain the shapes."""
    bits_of_group, rest = divmod(32 * codes.shape[-1], scales.shape[-1])
    return [(b, g) for b in _BITS for g in GROUP_SIZES if rest == 0 and b * g == bits_of_group]


def _in_words(settings: tuple[int, int]) -> str:
    bits, size = settings
    return f"{bits} bit{'s' if bits > 1 else ''} in groups of {size}"
