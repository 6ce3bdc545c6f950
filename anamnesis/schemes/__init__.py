"""The encodings: which stored tensors make one weight, and the way back.

Each module here that stands for an encoding has `claim(claim, facts)`, which takes its weights out
of a model's stored tensors, told apart one by one by names, dtypes and shapes, and functions that
decode arrays in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from anamnesis.errors import AnamnesisError, UnsupportedError
from anamnesis.formats.stored import StoredTensor
from anamnesis.schemes.auxiliary import activation_side, is_auxiliary
from anamnesis.schemes.claim import Claim
from anamnesis.schemes.config import QuantFacts

__all__ = ["awq", "bnb", "claim_all", "fp8", "ggml", "gptq"]

# In the order of their turns, each with what its checkpoints have in a name, or in a dtype as
# `_likely` has it: where none of these stands, it need not be imported.
_SCHEMES = {
    "bnb": (".quant_state.bitsandbytes__", "SCB"),
    "fp8": ("F8_", "scaled_fp8"),
    "ggml": (" block",),
    "gptq": ("qweight",),
    "awq": ("qweight",),  # after GPTQ: it refuses what both leave
}
_MARKS = [(name, mark) for name, marks in _SCHEMES.items() for mark in marks]


def __getattr__(name: str) -> Any:
    if name not in _SCHEMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")


def _likely(stored: Mapping[str, StoredTensor]) -> list[ModuleType]:
    """Import and return the schemes that stored tensors may be of."""
    dtypes = {tensor.dtype for tensor in stored.values()}
    hints = "\n".join([*stored, *[f"{dtype.name} {dtype.kind}" for dtype in dtypes]])
    likely = dict.fromkeys([name for name, mark in _MARKS if mark in hints])
    return [import_module(f"{__name__}.{name}") for name in likely]


def claim_all(
    stored: dict[str, StoredTensor],
    read_facts: Callable[[], QuantFacts],
    unreadable: Mapping[str, AnamnesisError] | None = None,
    *,
    self_contained: bool = False,
) -> Claim:
    """Account for every stored tensor of a model: each is claimed exactly once.

    Schemes go first; then ranges of activations are dropped if anything is quantised at all; what
    is a part of a quantised weight by its name, but was consumed by none, is a problem; the rest
    are weights as they stand.

    Parameters
    ----------
    stored : dict of str to StoredTensor
    read_facts : function
        Returns what the config says; it is asked only if some tensor may be quantised.
    unreadable : mapping of str to AnamnesisError, optional
        What the format itself says cannot be decoded.
    self_contained : bool
        Whether each tensor is a weight by itself, so that names mean nothing.
    """
    claim = Claim(stored)
    for name, error in (unreadable or {}).items():
        claim.refuse([name], error)
    schemes = _likely(stored)
    if schemes:
        facts = read_facts()
        for scheme in schemes:
            scheme.claim(claim, facts)
        if claim.weights and not self_contained:
            from anamnesis.schemes.orientation import turn

            turn(claim, facts)
    if not self_contained:
        rest = claim.free()
        orphans = [t for t in rest if is_auxiliary(t, stored) and not activation_side(t.name)]
        if claim.weights or orphans:
            for tensor in orphans:
                claim.refuse([tensor.name], _orphan(tensor))
            for tensor in rest:
                if activation_side(tensor.name):
                    claim.drop(tensor.name, "range of activations or of a cache")
    claim.take_rest()
    return claim


def _orphan(tensor: StoredTensor) -> UnsupportedError:
    return UnsupportedError(
        f"{tensor.source.name}: {tensor.name} ({tensor.describe()}) looks like a part of a "
        "quantised weight, but no weight that can be read here uses it; --allow-unknown passes it "
        "through as it is"
    )
