"""Encodings that are known but cannot be decoded yet, and how they show.

One row each. An encoding that gets a decoder loses its row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from anamnesis.base.errors import AnamnesisError, UnsupportedError
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.detect.config_facts import QuantFacts

UNREAD = "cannot be decoded yet"
ADVICE = "use the original weights, or a copy of the model in another encoding"
_REMEDY = (
    f"{ADVICE}; allow_unknown=True copies the codes as they are stored, which gives no usable model"
)


class _Row(NamedTuple):
    """How an encoding shows."""

    encoding: str
    producer: str
    parts: str
    method: str = ""


_FP8 = "F8_E4M3,F8_E5M2"

# The first row that fits counts.
_ROWS = (
    _Row("INT4", "ComfyUI", "weight:U8 weight_scale comfy_quant"),
    _Row("INT8", "", "weight:I8 weight_scale"),
    _Row("INT8", "EETQ", "weight:I8 weight_scales"),
    _Row("FP8", "Transformer Engine", f"weight:{_FP8} _extra_state"),
    _Row("affine integers", "Metal", "weight scales qbiases"),
    _Row("integers of up to 8 bits", "torchao", "_weight_qdata"),
    _Row("integers of up to 8 bits", "torchao", "_qdata"),
    _Row("SINQ", "", "W_q", method="sinq"),
    _Row("HQQ", "", "W_q"),
    _Row("QuIP#", "", "Qidxs"),
    _Row("SpQR", "", "dense_weights"),
    _Row("FP-Quant", "", "dqweight"),
    _Row("FP-Quant", "", "qweight", method="fp_quant"),
    _Row("SVDQuant", "Nunchaku", "qweight wscales"),
    _Row("HIGGS", "", "weight scales tables"),
    _Row("SqueezeLLM", "", "qweight lookup_table"),
    _Row("OWQ", "", "oweight"),
    _Row("SDNQ", "", "weight svd_up"),
    _Row("scaled weights", "ComfyUI", "scale_weight"),
    _Row("QQQ", "", "B:I32 s_channel"),
)


class _Whole(NamedTuple):
    """What a weight of an encoding that is read has."""

    encoding: str
    codes: str
    needs: tuple[str, ...]
    method: str = ""


_STATE = "weight.quant_state.bitsandbytes__nf4|weight.quant_state.bitsandbytes__fp4"
_OF_BNB = ("weight.absmax", "weight.quant_map", _STATE)
_WHOLE = (
    _Whole(
        "packed integers (compressed-tensors)",
        "weight_packed:I32",
        ("weight_scale", "weight_shape"),
    ),
    _Whole("4-bit floats (compressed-tensors)", "weight_packed:U8", ("weight_scale",)),
    _Whole("INT8", "weight:I8", ("weight_scale",), "compressed-tensors"),
    _Whole("4-bit floats (ModelOpt)", "weight:U8", ("weight_scale",), "ModelOpt"),
    _Whole("NF4 or FP4 (bitsandbytes)", "weight weight.absmax", _OF_BNB),
    _Whole("NF4 or FP4 (bitsandbytes)", "weight:U8", _OF_BNB, "bitsandbytes"),
    _Whole("INT8 (bitsandbytes)", "weight:I8", ("SCB",), "bitsandbytes"),
    _Whole("GPTQ", "qweight:I32", ("qzeros", "scales"), "GPTQ"),
    _Whole("AWQ", "qweight:I32", ("qzeros", "scales"), "AWQ"),
    _Whole("AQLM", "codes", ("codebooks", "scales"), "AQLM"),
    _Whole("HQQ", "W_q nbits", ("scale", "zero", "shape", "axis")),
    _Whole("integers or floats (MLX)", "weight:U32", ("scales",), "MLX"),
    _Whole("integers (quanto)", "weight._data:I8", ("weight._scale",)),
)
_ELSEWHERE = (
    "give the whole directory if it lies in another shard; allow_unknown=True copies the codes as"
    " they are stored, which gives no usable model"
)

# For encodings that only the config names: how it spells a method, and the usual spelling.
_METHODS = {
    **{name.lower(): name for name in ("AQLM", "VPTQ", "HIGGS", "SINQ", "SpQR", "EETQ", "HQQ")},
    **{name.lower(): name for name in ("EXL2", "EXL3", "MLX", "Quark", "SDNQ", "GPTQ", "AWQ")},
    **{name: name for name in ("compressed-tensors", "bitsandbytes", "torchao", "quanto")},
    **dict.fromkeys(("fp_quant", "fp-quant"), "FP-Quant"),
    **dict.fromkeys(("quip", "quip#", "quip_sharp"), "QuIP#"),
    **dict.fromkeys(("auto-round", "intel/auto-round"), "AutoRound"),
    "modelopt": "ModelOpt",
    "bitnet": "BitNet",
    "comfyui": "ComfyUI",
    "fouroversix": "Four Over Six",
    "quartet": "Quartet",
    "svdquant": "SVDQuant",
    "fbgemm_fp8": "FBGEMM",
}


def name_encoding(parts: Mapping[str, StoredTensor], facts: QuantFacts) -> str | None:
    """Return the encoding of a weight in words, or None if neither names nor config show it."""
    by_config = (facts.declared or "").partition(",")[0]
    for row in _ROWS:
        if row.method.lower() in by_config.lower() and _fits(row.parts, parts):
            producer = row.producer or _METHODS.get(by_config.lower(), "")
            is_given = not producer or producer == row.encoding
            return row.encoding if is_given else f"{row.encoding} ({producer})"
    return _METHODS.get(by_config.lower())


def missing_parts(
    weight: str,
    parts: Mapping[str, StoredTensor],
    stored: Mapping[str, StoredTensor],
    facts: QuantFacts,
) -> AnamnesisError | None:
    """Return the error for a weight whose parts are missing; None if it is of no known kind."""
    by_config = (facts.declared or "").partition(",")[0].lower()
    for whole in _WHOLE:
        if whole.method.lower() in by_config and _fits(whole.codes, parts):
            missing = [
                ends
                for ends in whole.needs
                if not any(f"{weight}.{end}" in stored for end in ends.split("|"))
            ]
            if missing:
                codes = parts[whole.codes.split()[0].partition(":")[0]]
                names = ", no ".join(name.replace("|", " or ") for name in missing)
                why = f"{codes} holds {whole.encoding}, but there is no {names} beside it"
                return codes.unsupported(why, remedy=_ELSEWHERE)
    return None


def _fits(shown: str, parts: Mapping[str, StoredTensor]) -> bool:
    for part in shown.split():
        name, _, dtypes = part.partition(":")
        tensor = parts.get(name)
        if tensor is None or (dtypes and tensor.dtype.name not in dtypes.split(",")):
            return False
    return True


def refuse_encoding(codes: StoredTensor, encoding: str, facts: QuantFacts) -> UnsupportedError:
    """Return the error for a weight with these codes, whose encoding cannot be decoded yet."""
    return unread_error(f"{codes.source.name}: {codes}", encoding, facts)


def unread_error(what: str, encoding: str, facts: QuantFacts) -> UnsupportedError:
    """Return the error for a weight, `what`, whose encoding in words is `encoding`."""
    said = f"; the config says {facts.declared}" if facts.declared else ""
    error = UnsupportedError(f"{what}: {encoding} {UNREAD}{said}", remedy=_REMEDY)
    error.encoding = encoding
    return error
