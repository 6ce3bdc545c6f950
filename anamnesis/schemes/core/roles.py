"""What a stored tensor is to its weight, in a word: codes, scales, zeros.

By the names that `names` has of parts, for all schemes alike: a weight's first part is its codes.
"""

from __future__ import annotations

import re
from functools import lru_cache

from anamnesis.base.plain_json import json_table
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.weight import Weight

CODES = "codes"

# By the last component of a name, or what a library adds to it; the first that fits counts.
_ROLES: tuple[tuple[str, str], ...] = tuple(json_table(__file__).items())


def roles(weight: Weight) -> tuple[str, ...]:
    """Return what each part is to a weight, in their order."""
    return (CODES, *map(role_beside, weight.parts[1:]))


def role_beside(part: StoredTensor) -> str:
    """Return what a part is that lies beside codes."""
    name = part.name
    return _role_by(name[name.rfind(".") + 1 :]) or _role_by(name) or "others"


@lru_cache(maxsize=256)  # a model has many parts of few names
def _role_by(name: str) -> str | None:
    lower = name.lower()  # patterns are not compiled before they are needed, for a quick start
    return next((role for role, pattern in _ROLES if re.search(pattern, lower)), None)


def counted(role: str, n: int) -> str:
    """Return how many parts there are of a role, which are called in the plural."""
    if n == 1:
        role = "group index" if role == "group indices" else role.removesuffix("s")
    return f"{n:,} {role}"
