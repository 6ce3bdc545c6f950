"""Names of stored tensors that are not weights: parts, and what is dropped.

One table for all schemes, also those that are not read yet, so that no scale, zero point or
codebook can pass for a weight.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from anamnesis.base.plain_json import json_table
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.detect.activation_scales import activation_side
from anamnesis.schemes.libraries.torchao_metadata import CODES, SCALE, ZEROS

_TABLE = json_table(__file__)


def _words(key: str) -> tuple[str, ...]:
    """Return the words of an entry, whosever they are."""
    found = _TABLE[key]
    return tuple((found if isinstance(found, str) else " ".join(found.values())).split())


# Last names of modules that are tables: looked up by row, not multiplied with.
TABLES = frozenset(_words("tables"))
_ALWAYS_SUFFIXES, _ALWAYS_INFIXES = _words("endings"), _words("within")
# What torchao adds to the name of a weight, after an underscore: codes, and what lies beside them.
_TORCHAO_CODES = f"_{CODES}"
_TORCHAO_PARTS = (f"_{SCALE}", f"_{ZEROS}")
# Of parts of stacked experts, which follow the name of the weight.
_STACKED_CODES = ("_qweight", "_qzeros", "_g_idx", "_blocks", "_scales")  # the last gpt-oss's
_STACKED_SUFFIXES = (*_words("stacked"), *_STACKED_CODES)
# Last components of parts that are also ordinary names, so that they count only as integers: HQQ,
# EXL2, EXL3. A name of diffusion models without its dots ends so, too: `…attn1to_qweight`.
_AS_INTEGERS = frozenset(_words("as integers"))
_OF_INTEGERS = frozenset(_words("of integers"))  # floats of these names are ordinary
# The same, but only where one of these other parts lies beside.
_WITH = {
    name: tuple(others.split())
    for rows in _TABLE["with"].values()
    for names, others in rows.items()
    for name in names.split()
}
# Marlin and QQQ give their parts a letter each, which counts where codes of theirs are.
_MARLIN_CODES = ("B", "B_24")
_MARLIN = frozenset({*_MARLIN_CODES, "B_meta", "s", "s_group", "s_channel"})
# Last components that are also ordinary parameters elsewhere: only beside quantised codes, as is
# anything else with `scale`, or the weight's own name, in its name.
_BESIDE_CODES = frozenset(_words("beside codes"))
_AFFINE = {"scales": "biases", "biases": "scales"}
# Last components that only ever belong to a quantised weight: all parts of layouts but those whose
# names are ordinary, which count where something else says so; and parts of encodings that are not
# read, or refused.
_ORDINARY = {*_AS_INTEGERS, *_OF_INTEGERS, *_WITH, *_MARLIN, *_BESIDE_CODES, *_AFFINE}
with open(os.path.join(os.path.dirname(__file__), "part_names.json"), encoding="utf-8") as _file:
    _OF_LAYOUTS = json.load(_file)  # by tools/part_names.py
_ALWAYS = {*_words("of unread encodings"), *_OF_LAYOUTS} - _ORDINARY - set(_words("ordinary"))
_CODE_NAMES = _words("codes")
_FP8 = frozenset({"F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"})
_CODE_DTYPES = _FP8 | {"U8", "I8", "U16", "I16", "U32", "I32", "F4", "F6_E2M3", "F6_E3M2"}
_STATE = "_extra_state"  # Transformer Engine's: has the scale of 8-bit weights in a pickle

# Integers that models keep beside their weights: masks, tables of positions, ids.
_BUFFER_ENDINGS = ("bias", "mask", "ids", "idx", "idxs", "index", "indices", "positions", "layout")

_CENTROIDS = (".centroids.weight", ".res_centroids.weight")  # VPTQ's
_NESTED_PARTS = (".weight._data._data", ".weight._data", *_CENTROIDS)  # the former quanto's


def sibling(name: str, last: str) -> str:
    """Return the name with its last component replaced."""
    head, dot, _ = name.rpartition(".")
    return f"{head}{dot}{last}"


def module_of(name: str) -> str:
    """Return the name of the layer that a weight, or a part of one, belongs to."""
    if name.endswith(_NESTED_PARTS):
        return name.removesuffix(next(part for part in _NESTED_PARTS if name.endswith(part)))
    name = name.partition(".quant_state.")[0]  # bitsandbytes
    head = name.rpartition(".")[0]
    return head.removesuffix(".weight_quantizer").removesuffix(".weight")


def weight_of(name: str, stored: Mapping[str, object]) -> str:
    """Return the name of the weight that a part belongs to, or of the weight itself."""
    # That is the module; of stacked experts, whose parts are called by a suffix, the weight.
    head, dot, last = name.rpartition(".")
    for suffix in _STACKED_SUFFIXES if last not in _ALWAYS else ():
        weight = f"{head}{dot}{last.removesuffix(suffix)}"
        is_stacked = last.endswith(suffix) and last != f"weight{suffix}"
        if is_stacked and (weight in stored or suffix in _STACKED_CODES):
            return weight
    if last != "weight" and any(name + suffix in stored for suffix in _STACKED_SUFFIXES):
        return name
    return module_of(name)


def is_auxiliary(
    tensor: StoredTensor, stored: dict[str, StoredTensor], *, is_declared: bool = False
) -> bool:
    """Return whether a stored tensor is a part of some quantised weight and not a weight itself."""
    # What is called like a range of activations is none, for it may be learned. `is_declared` is
    # whether the config says that the model is quantised.
    name = tensor.name
    last = name.rpartition(".")[2]
    if last in _AS_INTEGERS and tensor.dtype.kind == "int":
        return True
    if last in ("weight", "bias") or activation_side(name):
        return name.endswith(_CENTROIDS)
    if last in _ALWAYS:
        return True
    if last in _WITH:
        flat = name.replace("._data._data", "._data")
        beside = (stored.get(sibling(flat, other)) for other in _WITH[last])
        if _may_be_part(tensor) and any(other and _may_be_part(other) for other in beside):
            return True
    if any(infix in name for infix in _ALWAYS_INFIXES) or last.endswith(_ALWAYS_SUFFIXES):
        return True
    if last.endswith(("_qweight", "_g_idx")):  # floats may be called so, but not beside other parts
        head = name.removesuffix("_qweight").removesuffix("_g_idx")
        beside_it = any(head + other in stored for other in ("_qzeros", "_scales"))
        if beside_it or tensor.dtype.kind != "float":
            return True
    if last[:1] == "_" and _is_of_torchao(name, last, stored):
        return True
    return tensor.dtype.kind == "scale" or _is_beside_codes(tensor, last, stored, is_declared)


def _may_be_part(tensor: StoredTensor) -> bool:
    return tensor.dtype.kind != "float" or tensor.name.rpartition(".")[2] not in _OF_INTEGERS


def _is_of_torchao(name: str, last: str, stored: dict[str, StoredTensor]) -> bool:
    if last.endswith(_TORCHAO_CODES):
        return True
    if not last.endswith(_TORCHAO_PARTS):
        return False
    ends = (i for i, letter in enumerate(last) if letter == "_" and i)
    return any(sibling(name, last[:i] + _TORCHAO_CODES) in stored for i in ends)


def _is_beside_codes(
    tensor: StoredTensor, last: str, stored: dict[str, StoredTensor], is_declared: bool
) -> bool:
    """Return whether a tensor is a part by a name that counts only where codes lie beside."""
    name = tensor.name
    if last in _MARLIN:
        packed = (stored.get(sibling(name, c)) for c in _MARLIN_CODES)
        if any(c is not None and c.dtype.name == "I32" for c in packed):
            return True
    if last.endswith(("_blocks", "_scales")) and tensor.dtype.name == "U8":  # gpt-oss
        return True
    if name.endswith(".scales") and tensor.dtype.name == "U8" and tensor.shape[1:]:
        return True  # the same as OpenAI has it; MLX's scales of floats
    if name.endswith(".blocks") and tensor.dtype.name == "U8" and tensor.shape[2:][-1:] == (16,):
        return True
    if last in _AFFINE:  # groups have a scale and a bias each, as MLX's have; no words are there
        beside, weight = (stored.get(sibling(name, other)) for other in (_AFFINE[last], "weight"))
        shape = beside.shape if beside is not None and beside.dtype is tensor.dtype else None
        # Plain models may have such beside a weight of floats; models that say that they are not
        # plain have not.
        fits = weight is None or (is_declared and weight.shape[:-1] == tensor.shape[:-1])
        if shape == tensor.shape and fits and len(shape) > 1:
            return True
    if last == _STATE:
        weight = stored.get(sibling(name, "weight"))
        return tensor.n_bytes > 0 and weight is not None and weight.dtype.name in _FP8
    if last in _BESIDE_CODES or "scale" in last or last[:7] == "weight_" or ".weight." in name:
        head = name.rpartition(".")[0]
        own = head if head.endswith(".weight") else name
        names = (head, *(sibling(own, c) for c in _CODE_NAMES))
        codes = (stored.get(name) for name in names)
        return any(c is not None and c.dtype.name in _CODE_DTYPES for c in codes)
    return False


def looks_like_codes(tensor: StoredTensor) -> bool:
    """Return whether a tensor may hold codes, if anything in its model does."""
    # Those are integers called a weight, and matrices of narrow ones that are no buffer by their
    # name: indices come as 64-bit integers.
    dtype = tensor.dtype
    if dtype.kind == "float" or (dtype.kind != "int" and dtype.name not in _CODE_DTYPES):
        return False
    last = tensor.name.rpartition(".")[2]
    if last.endswith("weight"):
        return tensor.n_elements > 1
    return (
        len(tensor.shape) > 1 and dtype.name in _CODE_DTYPES and not last.endswith(_BUFFER_ENDINGS)
    )


def without_padding(
    name: str, shape: tuple[int, int], step: int, stored: Mapping[str, StoredTensor]
) -> int:
    """Return the out features of a matrix, of a head as many as embeddings: codes are padded."""
    if f".{name}".endswith(".lm_head.weight"):
        for tensor in stored.values():
            *_, module, last = ("", *tensor.name.split("."))
            if last == "weight" and module in TABLES and len(tensor.shape) == 2:
                n, width = tensor.shape
                if width == shape[1] and -(-n // step) * step == shape[0]:
                    return n
    return shape[0]
