"""Which stored tensors are EXL2's codes, and what belongs to them."""

from __future__ import annotations

from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.layout import Field, missing, stored_parts
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.detect.not_weights import without_padding
from anamnesis.schemes.families.exl2.weight import IN_WORD, MAX_IN_FEATURES, Exl2Weight

_PADDED_TO = 32  # exllamav2 fills out features up to a multiple of it


class Exl2:
    """exllamav2's, which makes the last two parts itself as it loads the others."""

    fields = (
        Field("codes", "{module}q_weight", ("I32",)),
        Field("scales", "{module}q_scale", ("I32",)),
        Field("largest scales", "{module}q_scale_max", ("F16",)),
        Field("groups", "{module}q_groups", ("I16",)),
        Field("order", "{module}q_invperm", ("I32",)),
        # The others are claimed, and not looked into.
        Field(
            "inverse order", "{module}q_perm", ("I32", "I16"), unless="the order alone is stored"
        ),
        Field(
            "groups of rows", "{module}q_group_map", ("I16",), unless="the groups alone are stored"
        ),
    )


def find_all(ledger: Ledger, facts: QuantFacts) -> None:
    """Take all weights of EXL2."""
    for codes in ledger.free():
        name = Exl2.fields[0].weight_of(codes.name)
        if name is None or codes.dtype.kind == "float":
            continue
        found = stored_parts(Exl2.fields, name, ledger.find)
        with ledger.refusing(part.name for part in found.values()):
            absent = missing(Exl2.fields, found)
            if absent:
                raise codes.unsupported(
                    f"{codes} has no {absent[0].named(name)}: it may be in another shard; pass the "
                    "directory"
                )
            weight = weight_of(name, (*found.values(),))
            rows, cols = weight.shape
            weight.shape = (without_padding(name, (rows, cols), _PADDED_TO, ledger.stored), cols)
            ledger.take(weight)


def weight_of(name: str, parts: tuple[StoredTensor, ...]) -> Exl2Weight:
    """Return parts, in the order of `Exl2.fields`, as a weight."""
    codes, scales, maxima, groups, order = parts[:5]
    for part, field in zip(parts[:5], Exl2.fields, strict=False):
        if part.dtype.name not in field.dtypes or 0 in part.shape:
            raise part.misshapen(f"{' or '.join(field.dtypes)} that is not empty")
    if len(codes.shape) != 2 or codes.shape[1] % IN_WORD:
        raise codes.misshapen(f"[words, out features], of which there are multiples of {IN_WORD},")
    if len(order.shape) != 1 or order.shape[0] > MAX_IN_FEATURES:
        raise order.misshapen(f"I32 [in features], at most {MAX_IN_FEATURES:,},")
    if len(maxima.shape) != 1 or maxima.shape[0] > order.shape[0]:
        raise maxima.misshapen("F16 [groups]")
    n_groups, n_out = maxima.shape[0], codes.shape[1]
    if scales.shape != (n_groups, n_out // IN_WORD):
        raise scales.misshapen(f"[{n_groups}, {n_out // IN_WORD}]", codes)
    if groups.shape != (2 * n_groups,):
        raise groups.misshapen(f"[{2 * n_groups}]", maxima)
    return Exl2Weight(name, (n_out, order.shape[0]), parts)
