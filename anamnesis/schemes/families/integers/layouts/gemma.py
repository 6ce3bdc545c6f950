"""Gemma's integers of 2, 4 and 8 bits, of transformers' `gemma`.

    weight U8 [rows, bytes], the first code in the lowest bits, stored plus 2 or 8; in 8 bits I8
    weight_scale F32 [rows, 1]
    embedding_quantized, embedding_scale the same of an embedding, with one or more scales a row

    result = round(float32(code) * scale)

No shape tells 2 bits from 4: the config says how many a module has. Its layers multiply in the
dtype that is asked for, which the scale is rounded to first.
"""

from __future__ import annotations

from collections.abc import Sequence

from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.layout import Field
from anamnesis.schemes.core.rounding import IN_OUTPUT
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.families.integers.checks import check_scale_dtype
from anamnesis.schemes.families.integers.weight import IntegerWeight
from anamnesis.schemes.libraries.config import Expectation
from anamnesis.schemes.libraries.targets import matches

_METHOD = "gemma"
_CODES = ("U8", "I8")

FIELDS = (Field("codes", "{module}weight", _CODES), Field("scales", "{module}weight_scale"))
EMBEDDING = (
    Field("codes", "{module}embedding_quantized", _CODES),
    Field("scales", "{module}embedding_scale"),
)


def find_all(ledger: Ledger, facts: QuantFacts) -> None:
    """Take all weights under these names."""
    is_gemma = (facts.method or "").lower() == _METHOD
    if is_gemma or "embedding_quantized" in ledger.by_end:
        ledger.take_found(dict.fromkeys(_CODES, (_find,)), facts)


def _find(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> IntegerWeight | None:
    is_gemma = (facts.method or "").lower() == _METHOD
    for own, beside in (EMBEDDING, FIELDS) if is_gemma else (EMBEDDING,):
        name = own.weight_of(codes.name)
        scale = None if name is None else ledger.find(beside.named(name))
        if name is None or scale is None or len(codes.shape) != 2:
            continue
        said = facts.expected if is_gemma else ()
        bits = 8 if codes.dtype.name == "I8" else _bits(codes, said)
        check_scale_dtype(scale, codes)
        (rows, n_bytes), per_byte = codes.shape, 8 // bits
        stored = n_bytes * per_byte
        # Of rows that end within a byte a size in the config tells.
        fitting = (n for n in range(stored, stored - per_byte, -1) if n in facts.sizes)
        cols = next(fitting, stored)
        groups = scale.shape[-1] if len(scale.shape) == 2 else 0
        if scale.shape != (rows, groups) or groups == 0 or cols % groups:
            raise scale.misshapen(f"[{rows}, 1]", codes)
        kernel, half = ("INT8", 0) if bits == 8 else (f"PACKED{bits}", 1 << bits - 1)
        return IntegerWeight(
            *(name, (rows, cols), (codes, scale), kernel, (1, cols // groups)),
            constant=half,
            producer="Gemma",
            reference=IN_OUTPUT,
        )
    return None


def _bits(codes: StoredTensor, said: Sequence[Expectation]) -> int:
    """Return the bits that the config says, where all that may be meant for a module say one."""
    # Of several patterns the one that begins first in a name counts; and what one means is not
    # always known.
    module = codes.name.rpartition(".")[0]
    found = [(one.bits, matches(target, module)) for target, one in said if target]
    given = {bits for bits, is_hit in found if is_hit is not False}
    if not any(is_hit for _, is_hit in found):
        given |= {one.bits for target, one in said if not target}
    if len(given) != 1 or not given <= {2, 4}:
        named = ", ".join(map(str, sorted(given))) or "nothing"
        raise codes.unsupported(
            f"{codes} holds codes of 2 or 4 bits, and the config says {named} of it",
            remedy="say num_bits of the module in module_quant_configs of config.json",
        )
    return given.pop()
