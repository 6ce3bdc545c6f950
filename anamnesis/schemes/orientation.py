"""Which weights a model has the other way round: those of transformers' `Conv1D`.

GPT-2 and its kin have layers whose parameter is [in, out]. bitsandbytes, GPTQModel, AutoAWQ and
AutoRound all store them as if they were nn.Linear, [out, in], and no file says so. Unless such a
weight comes out transposed, the model does not load it; or it loads it wrong, where it is square.
Names and the model's type in config.json tell. (FP8 codes lie as the model has them.)
"""

from __future__ import annotations

import re

from anamnesis.errors import AnamnesisError, ParseError, UnsupportedError
from anamnesis.schemes.auxiliary import sibling
from anamnesis.schemes.claim import Claim
from anamnesis.schemes.config import QuantFacts
from anamnesis.schemes.transposed import Transposed
from anamnesis.schemes.weight import TiledWeight

__all__ = ["CONV1D_TYPES", "LINEAR_TYPES", "is_conv1d", "turn"]

# Names of modules that are a Conv1D in some model.
_NAMES = re.compile(
    r"(?:^|\.)(?:h|decoder\.layers)\.[0-9]+\.(?:attn|crossattention|mlp)"
    r"\.(?:c_attn|q_attn|kv_attn|c_fc2?|c_proj)$"
)

# Types of models that have such names: where they are Conv1D, and where they are nn.Linear. The
# last ones are not transformers' own: their code comes with the model.
CONV1D_TYPES = frozenset(
    {
        *("gpt2", "openai-gpt", "imagegpt", "decision_transformer", "clvp", "clvp_decoder"),
        *("jais", "btlm"),
    }
)
LINEAR_TYPES = frozenset(
    {
        *("gpt_bigcode", "gpt_neo", "starcoder2"),
        *("qwen", "codeshell", "gpt_refact", "exaone"),
    }
)


def turn(claim: Claim, facts: QuantFacts) -> None:
    """Transpose what is a Conv1D's among the weights that were claimed as nn.Linear's.

    What may be either is refused.
    """
    for weight in list(claim.weights.values()):
        if not isinstance(weight, TiledWeight):
            continue
        try:
            if is_conv1d(weight.name, facts):
                claim.weights[weight.name] = _transposed(weight, claim)
        except AnamnesisError as error:
            claim.give_back(weight, error)


def is_conv1d(name: str, facts: QuantFacts) -> bool:
    """Tell whether a weight of this name is a Conv1D's.

    In a model of several, the section of the config that the name has counts before all others.

    Raises
    ------
    UnsupportedError
        If it may be one, and neither the config nor the user tells.
    """
    module = name.rpartition(".")[0]
    if not _NAMES.search(module):
        return False
    if facts.conv1d is not None:
        return facts.conv1d
    words = module.split(".")
    own = {kind for section, kind in facts.model_types if section in words}
    for types in (own, {kind for _, kind in facts.model_types}):
        answers = (not types.isdisjoint(CONV1D_TYPES), not types.isdisjoint(LINEAR_TYPES))
        if answers[0] != answers[1]:
            return answers[0]
    told = ", ".join(sorted({kind for _, kind in facts.model_types}))
    raise UnsupportedError(
        f"{name}: this may be a Conv1D as GPT-2 has it, whose weight is to be transposed, or an "
        f"nn.Linear; the model_type in config.json would tell, but "
        + (f"{told} is not known here" if told else "there is none")
        + "; put the model's config.json beside it, or say which with --conv1d or --linear"
    )


def _transposed(weight: TiledWeight, claim: Claim) -> Transposed:
    """Return the weight as [in, out]; its bias must agree that it is stored as [out, in]."""
    codes = weight.parts[0]
    bias = claim.stored.get(sibling(weight.name, "bias"))
    n = weight.shape[0] if bias is None or len(bias.shape) != 1 else bias.shape[0]
    if len(weight.shape) != 2 or weight.shape[0] != n:
        raise ParseError(
            f"{weight.name}: a Conv1D of {n:,} outputs should be stored as [{n}, in], "
            f"but this is {list(weight.shape)}",
            offset=codes.offset,
            source=codes.source.name,
        )
    return Transposed(weight.name, weight.shape[::-1], weight.parts, weight)
