"""Chooses a type for each weight, so that all fit a size with the least error."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import Any

from anamnesis.base.dtypes import BLOCK_DTYPES, DTYPES, output_dtype
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.patterns import UnmatchedError, chooser, unfitting
from anamnesis.base.sizes import format_size
from anamnesis.checkpoint.open import Checkpoint
from anamnesis.convert.decide.decide import decide
from anamnesis.convert.decide.decided import Decided
from anamnesis.convert.decide.renames import seen_as_asked
from anamnesis.convert.fit.allocate import Option, allocate
from anamnesis.convert.fit.errors import SAMPLE, Journal, measure_errors
from anamnesis.convert.plan.outputs import make_plan
from anamnesis.convert.plan.plan import Plan
from anamnesis.convert.request.options import OPTIONS
from anamnesis.convert.request.recipe import literal, recipe_text
from anamnesis.convert.request.request import Request, block_type
from anamnesis.convert.request.resolve import resolve
from anamnesis.formats.gguf.read import DEFAULT_ALIGNMENT
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.families.ggml import mixes
from anamnesis.schemes.families.ggml.encode import TYPES, BlockCodes
from anamnesis.schemes.families.ggml.weight import GgmlWeight

FAMILIES = {
    "k": ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q8_0"),
    "iq": ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS"),
    "legacy": ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"),
}
# Default mix of each type: the mix of the same name, if there is one.
_NAMED = {
    name: mixes.MIXES[mixes.ALIASES.get(name, name)].base for name in (*mixes.MIXES, *mixes.ALIASES)
}
_BASES = {
    base: f"gguf-{base.lower() if _NAMED.get(base.lower()) == base else name}"
    for name, base in _NAMED.items()
}
_LARGEST_BLOCK = 256  # values; the sizes of other blocks divide it
_WORDS = (
    "The error of weights is not the quality of a model: look at what it says",
    "before you use it.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOptions:
    """The options of `Model.fit`; `sample` is how many values of a weight are measured, or all."""

    size: int | None = None
    bits: float | None = None
    types: tuple[str, ...] = ("k",)
    least: tuple[tuple[str, str], ...] = ()
    most: tuple[tuple[str, str], ...] = ()
    sample: int | None = SAMPLE
    journal: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if (self.size is None) == (self.bits is None):
            raise ValueError("give one of target_size and target_bpw")
        if self.bits is not None and not self.bits > 0:
            raise ValueError(f"target_bpw must be above 0, not {self.bits}")


@dataclass(frozen=True, repr=False)
class Fit:
    """The types that were chosen.

    Attributes
    ----------
    types : dict of str to str
        By weight, in the order of the output.
    errors : dict of str to float
        By weight the sum of squared errors that its type takes, by importance if there is any.
    to, base : str
        The target of which `types` are overrides, and its own type.
    plan : Plan
        What would be written.
    is_sample : bool
        Whether errors are measured on a part of each weight.
    options : mapping
        What else was asked for, as of `convert`.
    """

    types: Mapping[str, str]
    errors: Mapping[str, float]
    to: str
    base: str
    plan: Plan
    is_sample: bool
    options: Mapping[str, Any]

    @property
    def error(self) -> float:
        return sum(self.errors.values())

    def __repr__(self) -> str:
        shares = ", ".join(
            f"{n:,} {type}" for type, n in Counter(self.types.values()).most_common()
        )
        bits = f"{self.plan.bits_per_weight:.4g} bits a weight"
        return f"<anamnesis.Fit: {shares}; {format_size(self.plan.n_bytes)}, {bits}>"

    def recipe(self) -> str:
        """Return the recipe for `convert` as TOML, without metadata."""
        counts = Counter(self.types.values()).most_common()
        shares = ", ".join(f"{n} {type}" for type, n in counts)
        figures = f"{self.plan.bits_per_weight:.4g} bits a weight, {self.plan.n_bytes:,} bytes"
        said: dict[str, Any] = {}
        for row in OPTIONS:
            value = self.options.get(row.name)
            is_given = value or (value is False and row.name == "cast_all")
            if row.recipe == "repeated" and is_given and value != row.default:
                said[row.name] = value
        if "imatrix" in said:
            said["imatrix"] = said["imatrix"].file
        if "dtype" in said:
            said["dtype"] = output_dtype(said["dtype"]).name.lower()
        own = {name: getattr(to, "id", to) for name, to in self.options["overrides"].items()}
        head = (f"{figures}:", shares, *_WORDS)
        return recipe_text(self.to, self.base, self.types, head, said, own)


class Fitting:
    """One model, one size; `options` are others of `Model.convert`."""

    def __init__(
        self, checkpoint: Checkpoint, ledger: Ledger, asked: FitOptions, options: Mapping[str, Any]
    ) -> None:
        self._asked, self._options = asked, _with_pinned(options, ledger.weights)
        request = self._resolved("gguf-q8_0", {})
        self._seen = seen_as_asked(checkpoint, ledger, request)
        self._options = _with_pinned(options, self._seen.ledger.weights)
        self._request = self._seen.spelt(self._resolved("gguf-q8_0", {}))
        decided, self._plan = self._planned(self._request)
        assert decided.mix is not None
        mixed = {name for name, typed in decided.mix.types.items() if typed.encoding is not None}
        encoded = {made.weight.name: made for made in self._plan.weights()}
        self._weights = {
            name: made.weight
            for name, made in encoded.items()
            if name in mixed and self._request.wants(name)
        }
        for option, pairs in (("least", self._asked.least), ("most", self._asked.most)):
            for pattern in unfitting([pattern for pattern, _ in pairs], list(self._weights)):
                raise UnmatchedError(option, pattern)
        self._types = {name: self._types_of(weight) for name, weight in self._weights.items()}
        self._weights = {name: w for name, w in self._weights.items() if self._types[name]}
        sizes = [encoded[name].n_bytes for name in self._weights]
        self._fixed = self._plan.n_bytes - sum(map(_padded, sizes))
        self._fixed_tensors = self._plan.n_tensor_bytes - sum(sizes)

    def fit(self) -> Fit:
        """Choose the types of the weights."""
        errors = self._errors()
        options = {
            name: [Option(t, self._n_bytes(weight, t), errors[name][t]) for t in self._types[name]]
            for name, weight in self._weights.items()
        }
        chosen = allocate(options, self._budget(), self._mixes())
        if chosen is None:
            least = sum([min(o.n_bytes for o in some) for some in options.values()])
            size = f"{least + self._fixed:,} bytes"
            if self._asked.size is None:
                n_bits = 8 * (least + self._fixed_tensors)
                size = f"{n_bits / self._plan.account.n_parameters:.4g} bits a weight"
            raise UnsupportedError(
                f"the smallest of these types take {size}",
                remedy="allow a larger size, or smaller types",
            )
        types = {name: option.type for name, option in chosen.items()}
        base = self._base(types)
        to = _BASES[base]
        own = {literal(name): f"gguf-{type.lower()}" for name, type in types.items()}
        _, plan = self._planned(self._resolved(to, own))
        found = {name: option.error for name, option in chosen.items()}
        return Fit(types, found, to, base, plan, self._asked.sample is not None, self._options)

    # --- the weights -------------------------------------------------------------------------

    def _resolved(self, to: str, overrides: Mapping[str, str]) -> Request:
        """Return a request for one type of all weights but the overridden ones."""
        own = {**self._options["overrides"], **overrides}
        return resolve(to, None, **{**self._options, "overrides": own, "pure": True})

    def _planned(self, request: Request) -> tuple[Decided, Plan]:
        decided = decide(self._seen._replace(request=request))
        decided.check()
        return decided, make_plan(decided)

    def _types_of(self, weight: Weight) -> list[str]:
        """Return the types that a weight may have, from few bits to many."""
        if self._request.override(weight.name) is not None:
            return []
        imatrix = self._request.imatrix
        importance = None if imatrix is None else imatrix.importance(weight.name, weight.shape)
        found = []
        for type in _named_types(self._asked.types):
            codes = BlockCodes(type).with_importance(importance)
            has_none = importance is None and type in mixes.NEED_IMATRIX
            if not has_none and codes.refuses(weight.shape) is None:
                found.append(type)
        low = _bits_of(weight.name, self._asked.least, 0.0)
        high = _bits_of(weight.name, self._asked.most, inf)
        within = sorted([type for type in found if low <= _bits(type) <= high], key=_bits)
        if found and not within:
            raise UnsupportedError(
                f"{weight.name!r}: no type is within its bounds",
                remedy="name more of them in types=..., or widen least=... and most=...",
            )
        return within

    def _errors(self) -> dict[str, dict[str, float]]:
        identity = [str(self._asked.sample)]
        imatrix = self._request.imatrix
        for name, weight in self._weights.items():
            importance = None if imatrix is None else imatrix.importance(name, weight.shape)
            parts = [
                (p.name, p.dtype.name, p.shape, p.offset, (p.source.way, p.source.stamp()))
                for p in weight.parts
            ]
            identity.append(repr((name, parts, importance and importance.digest)))
        lossy = {}
        for name, weight in self._weights.items():  # blocks stay the same in their own type
            own = weight.parts[0].dtype.name if isinstance(weight, GgmlWeight) else ""
            lossy[name] = [type for type in self._types[name] if type != own]
        journal = Journal(self._asked.journal, "\n".join(identity))
        try:
            sample, how = self._asked.sample, self._request.how
            measured = measure_errors(self._weights, lossy, imatrix, sample, how, journal)
        finally:
            journal.close()
        unchanged = {name: dict.fromkeys(self._types[name], 0.0) for name in self._weights}
        return {name: {**zeros, **measured[name]} for name, zeros in unchanged.items()}

    def _n_bytes(self, weight: Weight, type: str) -> int:
        n_bytes = BLOCK_DTYPES[type].n_bytes(prod(weight.shape))
        return n_bytes if self._asked.size is None else _padded(n_bytes)

    def _budget(self) -> int:
        """Return the bytes for the weights whose types are chosen."""
        if self._asked.size is not None:
            return self._asked.size - self._fixed
        assert self._asked.bits is not None
        return int(self._asked.bits * self._plan.account.n_parameters / 8) - self._fixed_tensors

    def _mixes(self) -> Iterator[dict[str, str]]:
        """Yield the types of llama-quantize's own mixes, which a choice must not be worse than."""
        for name in mixes.MIXES:
            if name == mixes.COPY or mixes.MIXES[name].base not in TYPES:
                continue
            try:
                request = resolve(f"gguf-{name}", None, **{**self._options, "pure": False})
                mix = decide(self._seen._replace(request=request)).mix
            except UnsupportedError:  # without an importance matrix
                continue
            assert mix is not None
            yield {
                weight: codes.block_type
                for weight, typed in mix.types.items()
                if typed.encoding is not None
                if isinstance(codes := typed.encoding.codes, BlockCodes)
            }

    def _base(self, types: Mapping[str, str]) -> str:
        """Return the type of most values, among those with a mix of their name."""
        counts: Counter[str] = Counter()
        for name, type in types.items():
            counts[type] += prod(self._weights[name].shape) if type in _BASES else 0
        return counts.most_common(1)[0][0] if counts else "Q8_0"


def _with_pinned(options: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return options with the types of output and embeddings as overrides."""
    left = dict(options)
    output, embedding = (
        left.pop(f"{name}_type", None) for name in ("output_tensor", "token_embedding")
    )
    is_tied = mixes.OUTPUT not in names
    pinned = {mixes.OUTPUT: output} | dict.fromkeys(
        mixes.EMBEDDINGS, embedding or (output if is_tied else None)
    )
    known = set(names)
    found = {name: type.lower() for name, type in pinned.items() if type and name in known}
    left["overrides"] = {**found, **(left.get("overrides") or {})}
    return left


def _bits(type: str) -> float:
    dtype = BLOCK_DTYPES.get(type) or DTYPES[type]
    return 8 * dtype.n_bytes(_LARGEST_BLOCK) / _LARGEST_BLOCK


def _padded(n_bytes: int) -> int:
    return n_bytes + -n_bytes % DEFAULT_ALIGNMENT


def _named_types(words: Iterable[str]) -> list[str]:
    found: dict[str, None] = {}
    for word in words:
        own = FAMILIES.get(word.lower())
        try:
            types = own or (block_type(word),)
        except ValueError as error:
            raise ValueError(f"types: {error}") from None
        for type in types:
            if type not in TYPES:
                every = ", ".join(TYPES)
                raise ValueError(f"types: {type} is not a block type; choose from {every}")
        found |= dict.fromkeys(types)
    return list(found)


def _bits_of(name: str, pairs: Sequence[tuple[str, str]], default: float) -> float:
    """Return the bits of the first bound that matches a name."""
    for pattern, type in pairs:
        if chooser((pattern,))(name):
            return _bits(block_type(type))
    return default
