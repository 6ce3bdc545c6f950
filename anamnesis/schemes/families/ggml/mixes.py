"""The mixes of llama-quantize, as data: file types, and rules by what a tensor is.

A mix is what the tool is asked for, such as `q4_k_m`: it has a number, which the file says, and a
type for all tensors that no rule names. mixes.json has the rules of llama.cpp's
`src/llama-quant.cpp` at 0c1e570; `choose.py` goes through them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from anamnesis.base.plain_json import json_table

_TABLE = json_table(__file__)


class Mix(NamedTuple):
    """What llama-quantize is asked for."""

    number: int
    base: str


MIXES = {name: Mix(*row) for name, row in _TABLE["mixes"].items()}
ALIASES = {"q3_k": "q3_k_m", "q4_k": "q4_k_m", "q5_k": "q5_k_m"}
FILE_TYPE = "general.file_type"  # the key of the number
COPY = "copy"  # every tensor as it is; the file says of its type what the source does
LOW = frozenset(("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq2_m"))  # these count tensors

# What names of tensors contain that stay as they are, and what those are.
KEPT: Mapping[str, str] = _TABLE["kept"]
KEPT_WHOLE: Mapping[str, str] = _TABLE["kept_whole"]
KEPT_BY_ARCH = {arch: tuple(parts.split()) for arch, parts in _TABLE["kept_by_arch"].items()}

# What ComfyUI-GGUF's patch of llama-quantize keeps beside those, by the architecture of an image or
# video model, with `=` for a whole name. Of qwen_image, which the patch lacks, it is ours.
KEPT_OF_IMAGES = {
    arch: tuple(parts.split()) for arch, parts in _TABLE["kept_by_image_arch"].items()
}

OUTPUT = "output.weight"
EMBEDDINGS = ("token_embd.weight", "per_layer_token_embd.weight")
# What a name contains, all words of the first that fits; and roles in words.
ROLES, IMAGE_ROLES = (
    {tuple(parts.split()): role for parts, role in _TABLE[table].items()}
    for table in ("roles", "image_roles")
)
WORDS: Mapping[str, str] = _TABLE["words"]


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

    @property
    def is_grouped(self) -> bool:
        model = self.model
        return model.n_kv_heads > 0 and model.n_heads // model.n_kv_heads >= 4

    @property
    def is_outer(self) -> bool:
        """Whether its layer is of the first eighth, or of the last."""
        return self.i < self.n // 8 or self.i >= 7 * self.n // 8

    @property
    def is_of_experts(self) -> bool:
        by_role = self.model.arch == "bailingmoe3"
        return self.is_stacked and (not by_role or self.role in ("up", "gate", "down"))


CONDITIONS: Mapping[str, Callable[[Place], bool]] = {
    "grouped": lambda place: place.is_grouped,
    "grouped or experts": lambda place: place.is_grouped or place.model.n_experts >= 4,
    "eight experts": lambda place: place.model.n_experts == 8,
    "of experts": lambda place: place.is_of_experts,
    "falcon": lambda place: place.model.arch == "falcon",
    "no falcon": lambda place: place.model.arch != "falcon",
    "imatrix": lambda place: place.has_imatrix,
    "no imatrix": lambda place: not place.has_imatrix,
    "ragged": lambda place: place.is_ragged,
    "first two": lambda place: place.i < 2,
    "first four": lambda place: place.i < 4,
    "first sixteenth": lambda place: place.i < place.n // 16,
    "first eighth": lambda place: place.i < place.n // 8,
    "middle": lambda place: not place.is_outer,
    # The outer layers, and a third of those between.
    "more": lambda place: place.is_outer or (place.i - place.n // 8) % 3 == 2,
}


class Rule(NamedTuple):
    """One rule; of those of a role the first counts that holds."""

    mixes: frozenset[str]  # all, if there are none
    type: str | None  # the mix's own, if there is none
    when: tuple[str, ...]  # of `CONDITIONS`

    def holds(self, mix: str, place: Place) -> bool:
        is_ours = not self.mixes or mix in self.mixes
        return is_ours and all(CONDITIONS[name](place) for name in self.when)


# By roles; with tied embeddings those of the output are the embeddings'. `mxfp4_moe` has its own
# for all but the output.
RULES = {
    role: [Rule(frozenset(mixes.split()), type, tuple(when)) for mixes, type, *when in rows]
    for role, rows in _TABLE["rules"].items()
}
IN_70B = {"Q3_K": "Q5_K", "Q4_K": "Q5_K"}  # what values become that eight heads share
# By architecture: what names contain, and the type, whatever the mix.
PINNED = {"glm5-next": (("attn_q_a", "attn_q_b", "nextn.eh_proj"), "Q8_0")}

# What takes the place of a type where rows are no blocks of it; F16 where they are none of that.
FALLBACKS: Mapping[str, str] = _TABLE["fallbacks"]
# Types that are garbage without an importance matrix, except of output and embeddings.
NEED_IMATRIX = frozenset(_TABLE["need_imatrix"].split())
