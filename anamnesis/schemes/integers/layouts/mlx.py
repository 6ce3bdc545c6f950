"""MLX's affine integers of 1 to 8 bits.

    weight U32 [..., rows, cols * bits / 32], a dense stream of bits
    scales, biases F32 | F16 | BF16 [..., rows, groups], of 32, 64 or 128 columns

    result = round(float32(float32(code * scale) + bias))

On a CPU, MLX computes in the dtype of its scales: with float32 ones it gives these bits; with
others product and sum are rounded to their dtype, and differ in the last bits.
"""

from __future__ import annotations

from anamnesis.base.errors import UnsupportedError
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.claim.facts import QuantFacts
from anamnesis.schemes.claim.ledger import Ledger
from anamnesis.schemes.claim.names import sibling
from anamnesis.schemes.core.rounding import Rounding
from anamnesis.schemes.integers.checks import check_scale_dtype, misshapen
from anamnesis.schemes.integers.weight import IntegerWeight

__all__ = ["GROUP_SIZES", "find", "weight_of"]

_REFERENCE = Rounding(("products", "sums"))

_BITS = (1, 2, 3, 4, 5, 6, 8)
GROUP_SIZES = (32, 64, 128)


def find(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> IntegerWeight | None:
    """Return the weight that codes are of, or None if it is of another kind.

    Raises
    ------
    UnsupportedError, ParseError
        If its parts do not fit.
    """
    module, _, last = codes.name.rpartition(".")
    if last != "weight" or len(codes.shape) < 2:
        return None
    scales, biases = (ledger.find(sibling(codes.name, part)) for part in ("scales", "biases"))
    if (scales is None) != (biases is None) and (scales is None or scales.dtype.kind == "float"):
        missing = "biases" if biases is None else "scales"
        raise UnsupportedError(
            f"{codes.source.name}: {codes.name} ({codes.describe()}) is in MLX's affine integers, "
            f"but {sibling(codes.name, missing)} is missing; give the whole directory if it lies "
            "in another shard"
        )
    if scales is None or biases is None:
        return None
    return weight_of(codes, scales, biases, facts.layers.get(module, facts.layers.get("")))


def weight_of(
    codes: StoredTensor,
    scales: StoredTensor,
    biases: StoredTensor,
    told: tuple[int, int] | None,
) -> IntegerWeight:
    """Return the weight of three parts, whose bits and group size somebody may have told.

    Raises
    ------
    UnsupportedError, ParseError
        If the parts do not fit.
    """
    check_scale_dtype(scales, codes)
    if scales.shape[:-1] != codes.shape[:-1] or 0 in codes.shape or 0 in scales.shape:
        raise misshapen(scales, codes, f"[{', '.join(map(str, codes.shape[:-1]))}, groups]")
    if biases.shape != scales.shape or biases.dtype != scales.dtype:
        raise misshapen(biases, codes, f"{scales.describe()}, as of {scales.name},")
    bits, size = _layout(codes, scales, told)
    shape = (*codes.shape[:-1], scales.shape[-1] * size)
    return IntegerWeight(
        codes.name,
        shape,
        (codes, scales, biases),
        f"PACKED{bits}",
        (1, size),
        biases=biases,
        producer="MLX",
        reference=_REFERENCE,
    )


def _layout(
    codes: StoredTensor, scales: StoredTensor, told: tuple[int, int] | None
) -> tuple[int, int]:
    """Return bits and group size: of those that explain the shapes the ones that are declared."""
    bits_of_group, rest = divmod(32 * codes.shape[-1], scales.shape[-1])
    fitting = [(b, g) for b in _BITS for g in GROUP_SIZES if rest == 0 and b * g == bits_of_group]
    if not fitting:
        raise misshapen(scales, codes, "a scale for each 32, 64 or 128 codes")
    if told in fitting:
        return told
    if len(fitting) > 1:
        *some, last = map(_in_words, fitting)
        choices = f"{', '.join(some)} or {last}"
        but = f", and not {_in_words(told)}, as the config has it" if told else ""
        raise UnsupportedError(
            f"{codes.source.name}: {codes.name} ({codes.describe()}) may hold "
            f"{choices}{but}; say which with bits and group_size in quantization of config.json"
        )
    return fitting[0]


def _in_words(settings: tuple[int, int]) -> str:
    bits, size = settings
    return f"{bits} bit{'s' if bits > 1 else ''} in groups of {size}"
