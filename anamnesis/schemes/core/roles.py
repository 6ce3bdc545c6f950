"""What a stored tensor is to its weight, in a word: codes, scales, zeros.

By the names that `names` has of parts, for all schemes alike: a weight's first part is its codes.
"""

from __future__ import annotations

import re
from functools import lru_cache

from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.weight import Weight

CODES = "codes"
_OTHERS = "others"

# By the last component of a name, or what a library adds to it; the first that fits counts.
_ROLES = (
    ("nested scales", r"nested_absmax"),
    ("nested maps", r"nested_quant_map"),
    ("quant maps", r"quant_map"),
    ("quant states", r"quant_state|bitsandbytes__"),
    ("zero points", r"zero|qzeros|_shift$|^q?biases$|bias_scale$|_blocks_bias$"),
    ("group indices", r"g_idx|group_map|invperm|^q?_?perm$"),
    ("second scales", r"weight_scale_2|global_scale|per_tensor_scale|scale_2$"),
    ("codebooks", r"codebook|centroids|lookup_table|^tables2?$|res_"),
    ("masks", r"bitmask|row_offsets|^meta$|indices"),
    (
        "settings",
        r"groups$|_shape$|^shape$|^axis$|^nbits$|comfy_quant|weight_format|_extra_state|^mcg$|^mul1$",
    ),
    ("signs", r"^s[uv]$"),
    ("scales", r"scale|absmax|scb|^s(_group)?$|(^|_)s_(channel|rel)$|^s[uv]h$"),
)


def roles(weight: Weight) -> tuple[str, ...]:
    """Return what each part is to a weight, in their order."""
    return (CODES, *map(role_beside, weight.parts[1:]))


def role_beside(part: StoredTensor) -> str:
    """Return what a part is that lies beside codes."""
    name = part.name
    return _role_by(name[name.rfind(".") + 1 :]) or _role_by(name) or _OTHERS


@lru_cache(maxsize=256)  # a model has many parts of few names
def _role_by(name: str) -> str | None:
    lower = name.lower()  # patterns are not compiled before they are needed, for a quick start
    return next((role for role, pattern in _ROLES if re.search(pattern, lower)), None)


def counted(role: str, n: int) -> str:
    """Return how many parts there are of a role, which are called in the plural."""
    if n == 1:
        role = "group index" if role == "group indices" else role.removesuffix("s")
    return f"{n:,} {role}"
