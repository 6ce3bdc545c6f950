"""Which type each tensor of a model becomes in a mix, as in llama-quantize.

kept -> asked of embeddings or output -> the first pattern -> the rules -> rows of no blocks
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anamnesis.base.dtypes import BLOCK_DTYPES
from anamnesis.base.errors import UnsupportedError
from anamnesis.schemes.families.ggml import mixes

# What a tensor can become: ggml makes no files of the two of these that sums are kept in.
TYPES = ("F32", "F16", "BF16", *(name for name in BLOCK_DTYPES if name not in ("Q8_1", "Q8_K")))

OWN = "the mix's own"  # why a tensor is of a type, if no rule says more

_LAYER = re.compile(r"blk\.\s*([+-]?[0-9]{1,9})")


class Given(NamedTuple):
    """A tensor of a model."""

    name: str
    shape: tuple[int, ...]
    asked: str | None = None


class Choice(NamedTuple):
    """What becomes of a tensor."""

    type: str | None
    why: str
    needs_imatrix: bool = False
    is_misfit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is asked for beside a mix; types are spelled `Q4_K`."""

    pure: bool = False
    output: str | None = None
    embedding: str | None = None
    leave_output: bool = False


def type_named(name: str) -> str:
    """Return a type by its name in either case."""
    if name.upper() not in TYPES:
        raise ValueError(f"there is no type {name!r}; there are {', '.join(TYPES)}")
    return name.upper()


def choose(
    tensors: Sequence[Given],
    model: mixes.ModelFacts,
    mix: str,
    options: Options | None = None,
    *,
    has_imatrix: bool = False,
) -> dict[str, Choice]:
    """Return what becomes of each tensor."""
    asked = options or Options()
    chooser = _Chooser(model, mix, asked, has_imatrix, [one.name for one in tensors])
    return {one.name: chooser.choice(one) for one in tensors}


def _role(name: str, *, of_images: bool) -> str:
    if name == mixes.OUTPUT and not of_images:
        return "output"
    if name in mixes.EMBEDDINGS and not of_images:
        return "embedding"
    roles = mixes.IMAGE_ROLES if of_images else mixes.ROLES
    return next((r for parts, r in roles.items() if all(p in name for p in parts)), "other")


class _Chooser:
    """What the rules count while they go from tensor to tensor."""

    def __init__(
        self,
        model: mixes.ModelFacts,
        mix: str,
        asked: Options,
        has_imatrix: bool,
        names: Iterable[str],
    ) -> None:
        self.of_images = model.arch in mixes.KEPT_OF_IMAGES
        of_roles = Counter(_role(name, of_images=self.of_images) for name in names)
        self.model = model
        self.mix = mix
        self.base = mixes.MIXES[mix].base if mix != mixes.COPY else ""
        self.asked = asked
        self.has_imatrix = has_imatrix
        self.is_tied = not of_roles["output"]
        self.n = dict.fromkeys(("up", "gate", "down"), model.n_layers) | {"v": of_roles["v"]}
        self.seen: Counter[str] = Counter()
        self.misfits: set[str] = set()

    def choice(self, given: Given) -> Choice:
        kept = self._kept(given)
        if kept is not None:
            return Choice(None, kept)
        type, why = self._type(given, _role(given.name, of_images=self.of_images))
        needs = type in mixes.NEED_IMATRIX or (type == "Q2_K" and self.mix == "q2_k_s")
        needs = needs and given.name != mixes.OUTPUT and given.name not in mixes.EMBEDDINGS
        return Choice(type, why, needs, given.name in self.misfits)

    def _kept(self, given: Given) -> str | None:
        """Return why a tensor stays as it is; None if it does not."""
        name, arch = given.name, self.model.arch
        if self.mix == mixes.COPY:
            return "copied"
        # ggml counts dimensions from the first on that is not 1.
        n_dims = next((len(given.shape) - i for i, n in enumerate(given.shape[:-1]) if n > 1), 1)
        if n_dims < 2 or (self.of_images and n_dims > 2):
            return "no matrix"
        if name.rfind("weight") != len(name) - 6:
            return "no weight"
        if name == mixes.OUTPUT and self.asked.leave_output:
            return mixes.WORDS["output"]
        kept = mixes.KEPT_OF_IMAGES.get(arch, ()) or mixes.KEPT_BY_ARCH.get(arch, ())
        if any(part in name or part == f"={name}" for part in kept):
            return f"kept in {arch}"
        return mixes.KEPT_WHOLE.get(name) or next(
            (mixes.KEPT[part] for part in mixes.KEPT if part in name), None
        )

    def _type(self, given: Given, role: str) -> tuple[str, str]:
        """Return the type of a tensor that is not kept, and why."""
        asked = self.asked
        # The second embeddings are large, and may be named.
        is_named = given.name == mixes.EMBEDDINGS[1] and given.asked is not None
        if asked.embedding is not None and role == "embedding" and not is_named:
            return self._whole(given, asked.embedding)
        if asked.output is not None and role == "output":
            return self._whole(given, asked.output)
        if given.asked is not None:
            return self._fitting(given, given.asked, "asked for")
        if self.base not in BLOCK_DTYPES:
            return self.base, OWN
        if asked.pure:
            return self._fitting(given, self.base, OWN)
        return self._fitting(given, *self._by_rules(given, role))

    def _by_rules(self, given: Given, role: str) -> tuple[str, str]:
        """Return the type by the rules of what a tensor is, and why."""
        parts, pinned = mixes.PINNED.get(self.model.arch, ((), ""))
        if any(part in given.name for part in parts):
            return pinned, f"for {self.model.arch}"
        if role == "embedding" and self.is_tied:
            role = "output"
        if role == "output" and self.asked.output is not None:
            return self._whole(given, self.asked.output)
        place = self._place(given, role)
        rules = mixes.RULES[self.mix if self.mix == "mxfp4_moe" and role != "output" else role]
        types = (rule.type for rule in rules if rule.holds(self.mix, place))
        found = next(types, None) or self.base
        if role == "v" and self.model.is_70b and self.mix not in mixes.LOW:
            found = mixes.IN_70B.get(found, found)
        return found, OWN if found == self.base else f"for {mixes.WORDS[role]}"

    def _place(self, given: Given, role: str) -> mixes.Place:
        """Return what the rules ask of a tensor, and count it."""
        name, n = given.name, self.n.get(role, 0)
        i = self.seen[role]
        self.seen[role] += 1
        by_layer = role in ("up", "gate", "down") and self.mix not in mixes.LOW
        if by_layer and self.model.n_experts > 1 and self.mix != "mxfp4_moe":
            found = _LAYER.match(name)
            if found is None or not 0 <= int(found[1]) < n:
                raise UnsupportedError(
                    f"{name}: {self.mix} chooses its type by its layer, of {n}, and its name does "
                    "not say a layer of these",
                    remedy="pure=True has no such rules",
                )
            i = int(found[1])
        is_stacked = len(given.shape) > 2 and given.shape[-3] > 1
        is_ragged = given.shape[-1] % _elements(self.base) != 0
        return mixes.Place(self.model, role, i, n, self.has_imatrix, is_stacked, is_ragged)

    def _whole(self, given: Given, type: str) -> tuple[str, str]:
        """Return a type that is asked for by itself, which no other takes the place of."""
        if given.shape[-1] % _elements(type):
            raise _no_blocks(given, type)
        return type, "asked for"

    def _fitting(self, given: Given, type: str, why: str) -> tuple[str, str]:
        """Return a type that rows of a tensor's length fit into: this one, or what replaces it."""
        n = given.shape[-1]
        if not n % _elements(type):
            return type, why
        if type not in mixes.FALLBACKS and _elements(type) > 32 and not self.of_images:
            raise _no_blocks(given, type)
        self.misfits.add(given.name)
        why = f"rows of {n:,} fit no {type}"
        other = type if self.of_images else mixes.FALLBACKS.get(type, type)
        return ("F16" if n % _elements(other) else other), why


def _no_blocks(given: Given, type: str) -> UnsupportedError:
    stated = f"rows of {given.shape[-1]:,} values are no {type} blocks of {_elements(type)}"
    return UnsupportedError(f"{given.name}: {stated}, and no type takes its place")


def _elements(type: str) -> int:
    return BLOCK_DTYPES[type].block_elements if type in BLOCK_DTYPES else 1
