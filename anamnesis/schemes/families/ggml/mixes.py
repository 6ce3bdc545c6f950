"""The mixes of llama-quantize, as data: file types, and rules by what a tensor is.

A mix is what the tool is asked for, such as `q4_k_m`: it has a number, which the file says, and a
type for all tensors that no rule names. The rules are those of llama.cpp's `src/llama-quant.cpp` at
0c1e570; `choose.py` goes through them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Mix(NamedTuple):
    """What llama-quantize is asked for."""

    number: int
    base: str


MIXES = {
    "f32": Mix(0, "F32"),
    "f16": Mix(1, "F16"),
    "q4_0": Mix(2, "Q4_0"),
    "q4_1": Mix(3, "Q4_1"),
    "q8_0": Mix(7, "Q8_0"),
    "q5_0": Mix(8, "Q5_0"),
    "q5_1": Mix(9, "Q5_1"),
    "q2_k": Mix(10, "Q2_K"),
    "q3_k_s": Mix(11, "Q3_K"),
    "q3_k_m": Mix(12, "Q3_K"),
    "q3_k_l": Mix(13, "Q3_K"),
    "q4_k_s": Mix(14, "Q4_K"),
    "q4_k_m": Mix(15, "Q4_K"),
    "q5_k_s": Mix(16, "Q5_K"),
    "q5_k_m": Mix(17, "Q5_K"),
    "q6_k": Mix(18, "Q6_K"),
    "iq2_xxs": Mix(19, "IQ2_XXS"),
    "iq2_xs": Mix(20, "IQ2_XS"),
    "q2_k_s": Mix(21, "Q2_K"),
    "iq3_xs": Mix(22, "IQ3_S"),
    "iq3_xxs": Mix(23, "IQ3_XXS"),
    "iq1_s": Mix(24, "IQ1_S"),
    "iq4_nl": Mix(25, "IQ4_NL"),
    "iq3_s": Mix(26, "IQ3_S"),
    "iq3_m": Mix(27, "IQ3_S"),
    "iq2_s": Mix(28, "IQ2_XS"),
    "iq2_m": Mix(29, "IQ2_S"),
    "iq4_xs": Mix(30, "IQ4_XS"),
    "iq1_m": Mix(31, "IQ1_M"),
    "bf16": Mix(32, "BF16"),
    "tq1_0": Mix(36, "TQ1_0"),
    "tq2_0": Mix(37, "TQ2_0"),
    "mxfp4_moe": Mix(38, "MXFP4"),
    "q1_0": Mix(40, "Q1_0"),
    "q2_0": Mix(41, "Q2_0"),
}
ALIASES = {"q3_k": "q3_k_m", "q4_k": "q4_k_m", "q5_k": "q5_k_m"}
COPY = "copy"  # every tensor as it is; the file says of its type what the source does
UNASKED = {"NVFP4": 39}  # numbers of types that files are mostly of, and the tool makes no mix of
GUESSED = 1024  # added to the number if a source does not say it


class ModelFacts(NamedTuple):
    """What the rules ask of a model; 0 is what it does not say."""

    arch: str = ""
    n_layers: int = 0
    n_heads: int = 0
    n_kv_heads: int = 0
    n_experts: int = 0
    is_70b: bool = False


class Place(NamedTuple):
    """What the rules ask of a tensor."""

    model: ModelFacts
    role: str
    i: int
    n: int
    has_imatrix: bool
    is_stacked: bool
    is_ragged: bool


# --- what is kept ---------------------------------------------------------------------------------

_TIME_MIX = (
    *("first", "w0", "w1", "w2", "v0", "v1", "v2", "a0", "a1", "a2", "g1", "g2"),
    *("decay_w1", "decay_w2", "lerp_fused"),
)
# What names of tensors contain that stay as they are, and what those are.
KEPT = {
    "_norm.weight": "a norm",
    "ffn_gate_inp.weight": "a router",
    "ffn_gate_tid2eid.weight": "a table of experts",
    "altup": "small",
    "laurel": "small",
    "per_layer_model_proj": "small",
    "ssm_conv1d": "a convolution",
    "shortconv.conv.weight": "a convolution",
    "indexer.k_proj.weight": "small",
    "indexer.q_proj.weight": "small",
    **dict.fromkeys((f"time_mix_{name}.weight" for name in _TIME_MIX), "small"),
    "attn_rel_b.weight": "relative positions",
    ".position_embd": "positions",
    "sam.pos_embd": "positions",
    "sam.neck.": "a convolution",
    "sam.net_": "a convolution",
    ".rel_pos": "relative positions",
    ".patch_embd": "patches of images",
    ".patch_merger": "patches of images",
    "a.rvq.codebook": "a codebook",
    "mm.a.code_embd": "a codebook",
}
KEPT_WHOLE = {"position_embd.weight": "positions", "token_types.weight": "types of tokens"}
KEPT_BY_ARCH = {
    "glm5-next": (
        "hc_",
        "indexer.attn_q_b",
        "indexer.attn_k",
        "indexer.proj",
        "indexer_compressor_gate",
        "indexer_compressor_ape",
        "ssm_f_a.weight",
        "ssm_f_b.weight",
        "ssm_g_a.weight",
        "ssm_g_b.weight",
        "ssm_beta.weight",
        "attn_kv_a_mqa.weight",
        "attn_k_b.weight",
        "attn_v_b.weight",
    )
}

# --- what a tensor is -----------------------------------------------------------------------------

OUTPUT = "output.weight"
EMBEDDINGS = ("token_embd.weight", "per_layer_token_embd.weight")
# What a name contains, the first that fits.
ROLES = {
    "attn_qkv.weight": "v",
    "attn_kv_b.weight": "v",
    "attn_v.weight": "v",
    "attn_k.weight": "k",
    "attn_q.weight": "q",
    "attn_output.weight": "o",
    "ffn_up": "up",
    "ffn_gate": "gate",
    "ffn_down": "down",
}
WORDS = {
    "output": "the output layer",
    "embedding": "the embeddings",
    "v": "values of attention",
    "k": "keys of attention",
    "q": "queries of attention",
    "o": "the output of attention",
    "up": "the way up",
    "gate": "gates",
    "down": "the way down",
    "other": "other matrices",
}

# --- which type it becomes ------------------------------------------------------------------------

When = Callable[[Place], bool]


class Rule(NamedTuple):
    """One rule; of those of a role the first counts that holds."""

    mixes: frozenset[str]
    type: str | None
    when: tuple[When, ...]


def _rule(mixes: str, type: str | None, *when: When) -> Rule:
    return Rule(frozenset(mixes.split()), type, when)


def _grouped(place: Place) -> bool:
    model = place.model
    return model.n_kv_heads > 0 and model.n_heads // model.n_kv_heads >= 4


def _grouped_or_experts(place: Place) -> bool:
    return _grouped(place) or place.model.n_experts >= 4


def _eight_experts(place: Place) -> bool:
    return place.model.n_experts == 8


def _falcon(place: Place) -> bool:
    return place.model.arch == "falcon"


def _no_falcon(place: Place) -> bool:
    return not _falcon(place)


def _imatrix(place: Place) -> bool:
    return place.has_imatrix


def _no_imatrix(place: Place) -> bool:
    return not place.has_imatrix


def _of_first(n: int) -> When:
    return lambda place: place.i < n


def _eighth(place: Place) -> bool:
    return place.i < place.n // 8


def _sixteenth(place: Place) -> bool:
    return place.i < place.n // 16


def _middle(place: Place) -> bool:
    return not _eighth(place) and place.i < 7 * place.n // 8


def _more(place: Place) -> bool:
    """Return whether a layer gets more bits: the outer ones, and a third of those between."""
    return not _middle(place) or (place.i - place.n // 8) % 3 == 2


def _of_experts(place: Place) -> bool:
    by_role = place.model.arch == "bailingmoe3"
    return place.is_stacked and (not by_role or place.role in ("up", "gate", "down"))


_SMALL_2 = "iq2_s iq2_m"
_LOW = f"iq1_s iq1_m iq2_xxs iq2_xs {_SMALL_2}"
LOW = frozenset(_LOW.split())  # their counters count tensors, those of others layers, with experts
_ANY = ""

RULES: dict[str, tuple[Rule, ...]] = {
    # With tied embeddings these are the rules of the embeddings.
    "output": (
        _rule("mxfp4_moe", "Q8_0"),
        _rule(_ANY, "Q8_0", _falcon),
        _rule(_ANY, "Q8_0", lambda place: place.is_ragged),
        _rule(f"{_LOW} iq3_xxs", "Q5_K"),
        _rule("q8_0", None),
        _rule(_ANY, "Q6_K"),
    ),
    "embedding": (
        _rule("iq1_s iq1_m iq2_xxs iq2_xs", "Q2_K"),
        _rule(f"{_SMALL_2} iq3_xxs", "IQ3_S"),
        _rule("tq1_0 tq2_0 q2_0", "Q4_K"),
    ),
    "v": (
        _rule(_LOW, "Q4_K", _grouped_or_experts),
        _rule(_SMALL_2, "IQ3_S"),
        _rule(_LOW, "Q2_K"),
        _rule(_ANY, "Q8_0", _eight_experts),
        _rule("q2_k q2_k_s iq3_xxs iq3_xs iq3_s", "Q4_K", _grouped),
        _rule("q2_k", "Q3_K"),
        _rule("iq3_xxs", "IQ3_S", _no_imatrix),
        _rule("iq3_m", "Q4_K"),
        _rule("q3_k_m", "Q5_K", _of_first(2)),
        _rule("q3_k_m", "Q4_K"),
        _rule("q3_k_l", "Q5_K"),
        _rule("iq4_nl iq4_xs", "Q5_K", _grouped),
        _rule("q4_k_m q5_k_m", "Q6_K", _more),
        _rule("q4_k_s", "Q5_K", _of_first(4)),
    ),
    "k": (
        _rule(_LOW, "Q4_K", _eight_experts),
        _rule(_ANY, "Q8_0", _eight_experts),
        _rule("iq3_xs", "IQ3_XXS"),
        _rule("iq3_xxs", "IQ2_S"),
    ),
    "q": (
        _rule("iq3_xs", "IQ3_XXS"),
        _rule("iq3_xxs", "IQ2_S"),
    ),
    "o": (
        _rule(_LOW, "Q5_K", _eight_experts),
        _rule("iq1_s iq1_m", "IQ2_XXS"),
        _rule(_SMALL_2, "IQ3_S"),
        _rule("q3_k_l", "Q4_K", _falcon),
        _rule(_ANY, None, _falcon),
        _rule("q2_k iq3_xxs iq3_xs iq3_s iq3_m q3_k_s q3_k_m", "Q5_K", _eight_experts),
        _rule("iq4_nl iq4_xs q4_k_s q4_k_m", "Q5_K", _eight_experts),
        _rule(_ANY, None, _eight_experts),
        _rule("q2_k", "Q3_K"),
        _rule("iq3_xxs", "IQ3_S"),
        _rule("q3_k_m iq3_m", "Q4_K"),
        _rule("q3_k_l", "Q5_K"),
    ),
    "down": (
        _rule(_SMALL_2, "IQ3_S", _eighth),
        _rule(_LOW, "Q2_K", _eighth),
        _rule("q2_k", "Q3_K"),
        _rule("q2_k_s", "Q4_K", _eighth),
        _rule("iq3_xxs", "Q4_K", _no_imatrix, _eighth),
        _rule("iq3_xxs", "Q3_K", _no_imatrix),
        _rule("q3_k_m", "Q5_K", _sixteenth),
        _rule("q3_k_m", "Q4_K", _no_falcon),
        _rule("q3_k_m", "Q4_K", _more),
        _rule("iq3_m", "Q4_K", _eighth),
        _rule("iq3_m", "Q4_K", _eight_experts, _more),
        _rule("q3_k_l", "Q4_K", _falcon),
        _rule("q3_k_l", "Q5_K"),
        _rule("q4_k_m", "Q6_K", _falcon, _sixteenth),
        _rule("q4_k_m", "Q5_K", _falcon, _more),
        _rule("q4_k_m q5_k_m", "Q6_K", _more),
        _rule("iq4_nl iq4_xs", "Q5_K", _no_imatrix, _eighth),
        _rule("q4_k_s", "Q5_K", _no_falcon, _eighth),
        _rule("q4_0", "Q4_1", _imatrix, _eighth),
        _rule("q5_0", "Q5_1", _imatrix, _eighth),
    ),
    "up": (_rule("iq3_xs", "IQ3_XXS", _middle),),
    "gate": (_rule("iq3_xs", "IQ3_XXS", _middle),),
    "other": (),
}
RULES_OF_MXFP4_MOE = (_rule(_ANY, "MXFP4", _of_experts), _rule(_ANY, "Q8_0"))  # of all but output
IN_70B = {"Q3_K": "Q5_K", "Q4_K": "Q5_K"}  # what values become that eight heads share
# By architecture: what names contain, and the type, whatever the mix.
PINNED = {"glm5-next": (("attn_q_a", "attn_q_b", "nextn.eh_proj"), "Q8_0")}

# What takes the place of a type where rows are no blocks of it; F16 where they are none of that.
FALLBACKS = {
    **dict.fromkeys(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S"), "IQ4_NL"),
    **dict.fromkeys(("IQ3_XXS", "IQ3_S", "IQ4_XS"), "IQ4_NL"),
    **dict.fromkeys(("Q2_0", "Q2_K", "Q3_K", "TQ1_0", "TQ2_0"), "Q4_0"),
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
}
# Types that are garbage without an importance matrix, except of output and embeddings.
NEED_IMATRIX = frozenset(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS"))
