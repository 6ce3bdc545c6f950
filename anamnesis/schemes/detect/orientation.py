"""Which weights a model has transposed: the weights of transformers' `Conv1D`.

GPT-2 and its kin have layers whose parameter is [in, out]. bitsandbytes, GPTQModel, AutoAWQ and
AutoRound all store them as if they were nn.Linear, [out, in], and no file says so. Unless such a
weight comes out transposed, the model does not load it; or it loads it wrong, where it is square.
Names and the model's type in config.json show it. (FP8 is stored either way; biases show which.)
"""

from __future__ import annotations

import re

from anamnesis.base.errors import AnamnesisError, UnsupportedError
from anamnesis.base.plain_json import json_table
from anamnesis.schemes.core.plain import Plain, PlainMatrix
from anamnesis.schemes.core.weight import TiledWeight, Weight
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.detect.not_weights import sibling
from anamnesis.schemes.views.transposed import Transposed, transposed

# Names of modules that are a Conv1D in some model: the last part, and the one before it.
_LAYERS = ("c_attn", "q_attn", "kv_attn", "c_fc", "c_fc2", "c_proj")
_ENDS = tuple(f".{layer}.weight" for layer in _LAYERS)
_BEFORE = re.compile(
    r"(?:^|\.)(?:h|decoder\.layers)\.[0-9]+\.(?:attn|crossattention|mlp)\.[^.]+\.weight$"
)

# Types of models that have such names: where they are Conv1D, and where they are nn.Linear. The
# last ones are not transformers' own: their code comes with the model.
_TABLE = json_table(__file__)
CONV1D_TYPES, LINEAR_TYPES = (frozenset(_TABLE[kind].split()) for kind in ("conv1d", "linear"))

_REMEDY = "say which with conv1d=True or conv1d=False"


def turn(ledger: Ledger, facts: QuantFacts) -> None:
    """Transpose what is a Conv1D's and stored as nn.Linear's; refuse what may be either."""
    named = [
        weight
        for weight in ledger.weights.values()
        if _may_be_conv1d(weight.name) and isinstance(weight, TiledWeight)
    ]
    shown = {weight.name: _shows_linear(weight, ledger) for weight in named}
    peers = {shown[weight.name] for weight in named if not weight.always_as_linear} - {None}
    for weight in named:
        as_linear = shown[weight.name]
        if as_linear is None and not weight.always_as_linear and len(peers) == 1:
            (as_linear,) = peers
        try:
            if _is_turned(weight, as_linear, facts):
                ledger.weights[weight.name] = transposed(weight)
        except AnamnesisError as error:
            ledger.retract(weight, error)


def conv1d_layers(ledger: Ledger) -> dict[str, bool | None]:
    """Return which matrices come out as in a Conv1D, [in, out]; None of what may be either."""
    # Where the config does not tell, the biases do: one is as long as the layer has outputs.
    named = [
        weight
        for weight in ledger.weights.values()
        if len(weight.shape) == 2 and _may_be_conv1d(weight.name)
    ]
    if not named:
        return {}
    facts = ledger.facts
    found: dict[str, bool | None] = {}
    for weight in named:
        outputs_first = _shows_linear(weight, ledger)
        try:
            said: bool | None = is_conv1d(weight.name, facts)
        except UnsupportedError:
            said = None if outputs_first is None else not outputs_first
        contradicts = said is not None and said == outputs_first and facts.conv1d is None
        found[weight.name] = None if contradicts else said
    peers = set(found.values()) - {None}
    if len(peers) == 1 and facts.conv1d is None:
        (said,) = peers
        found = {
            name: said
            if layer is None and _shows_linear(ledger.weights[name], ledger) is None
            else layer
            for name, layer in found.items()
        }
    return found


def as_linear(weight: Weight) -> Weight | None:
    """Return a weight that is [..., in, out] as in nn.Linear, [..., out, in]."""
    # None if it cannot be turned.
    if isinstance(weight, Transposed):
        return weight.stored
    if isinstance(weight, Plain) and not isinstance(weight, PlainMatrix):
        weight = PlainMatrix(weight.name, weight.shape, weight.parts)
    return transposed(weight) if isinstance(weight, TiledWeight) else None


def _may_be_conv1d(name: str) -> bool:
    return name.endswith(_ENDS) and _BEFORE.search(name) is not None


def is_conv1d(name: str, facts: QuantFacts) -> bool:
    """Return whether a weight of this name is a Conv1D's."""
    # In a model of several, the section of the config that the name has counts before all others.
    if not _may_be_conv1d(name):
        return False
    if facts.conv1d is not None:
        return facts.conv1d
    words = name.split(".")
    own = {kind for section, kind in facts.model_types if section in words}
    every = {kind for _, kind in facts.model_types}
    for types in (own, every):
        conv1d, linear = bool(types & CONV1D_TYPES), bool(types & LINEAR_TYPES)
        if conv1d != linear:
            return conv1d
    tells = f"does not tell ({', '.join(sorted(every))})" if every else "would tell"
    raise UnsupportedError(
        f"{name}: this may be a Conv1D as in GPT-2, whose weight is to be transposed, or an "
        f"nn.Linear; the model_type of a config.json beside the weights {tells}",
        remedy=f"put one there, or {_REMEDY}",
    )


def _shows_linear(weight: Weight, ledger: Ledger) -> bool | None:
    """Tell by its bias whether a weight is stored as [out, in], or as [in, out]."""
    bias = ledger.stored.get(sibling(weight.name, "bias"))
    if bias is None or len(bias.shape) != 1 or len(weight.shape) != 2:
        return None
    fits = [n == bias.shape[0] for n in weight.shape]
    return fits[0] if fits[0] != fits[1] else None


def _is_turned(weight: TiledWeight, as_linear: bool | None, facts: QuantFacts) -> bool:
    """Return whether a weight that seems to be stored as nn.Linear's is a Conv1D's."""
    if as_linear is False and not weight.always_as_linear:
        return False
    if not is_conv1d(weight.name, facts):
        return False
    codes = weight.parts[0]
    if as_linear is False or len(weight.shape) != 2:
        raise codes.malformed(
            f"{weight.name}: a Conv1D's weight should be stored as [out, in], but the shape "
            f"{list(weight.shape)} and its bias say otherwise"
        )
    if as_linear is None and not weight.always_as_linear and facts.conv1d is None:
        raise codes.unsupported(
            f"{weight.name}: a Conv1D's FP8 is stored as the model has it or transposed, depending "
            "on the program, and no bias tells which of the two",
            remedy=_REMEDY,
        )
    return True
