"""What GPTQ and AWQ share: modules with `qweight`, `qzeros` and `scales`.

Matrices are [in, out].

    qweight I32  words of codes, as each of them has them
    qzeros  I32  words of zero points [groups, out features * bits / 32]
    scales  F16 | BF16 | F32  [groups, out features]
    g_idx   I32  [in features], of GPTQ: the group of each

GEMV layouts of AWQ have the same names.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, NamedTuple

from anamnesis.base.dtypes import DType
from anamnesis.base.errors import AnamnesisError, LimitExceeded, ParseError, UnsupportedError
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.layout import (
    Config,
    Field,
    Layout,
    Moves,
    Repack,
    Shapes,
    each_moved,
    missing,
    module_of,
    stored_parts,
)
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.detect.unread import unread_error
from anamnesis.schemes.families.integers.checks import PACKED_MAX_GROUPS
from anamnesis.schemes.views.grid import block_candidates
from anamnesis.schemes.views.kinds import Integers, Words, worded

GROUP_SIZES = (32, 64, 128, 256, 512, 1024)  # that both libraries write
OF_A_FILE = " (of a file: in the quantization_config of a config.json beside it)"

# Layouts that cannot be decoded yet: as configs call them, and in words.
_FOREIGN_LAYOUTS = {
    "llm-awq": "LLM-AWQ",
    "bitblas": "BitBLAS",
    "qqq": "QQQ",
    "paroquant": "ParoQuant",
    "ipex": "IPEX",
    "fp_quant": "FP-Quant",
}

# Layouts that are decoded, but show in other shapes than those of GPTQ and of AWQ's GEMM.
_SHOWN = frozenset({"marlin", "gemv", "gemv_fast"})

# Those of GPTQ, whose zero points differ by one.
_GPTQ_LAYOUTS = frozenset({"gptq", "gptq_v2", "gptq_p"})

_WORDS = ("I32", "U32")
SCALES = ("F16", "BF16", "F32")


class InModules(Layout):
    """Parts that are called after modules; the libraries take linear layers in blocks."""

    fields: ClassVar[tuple[Field, ...]] = (
        Field("codes", "{module}qweight", _WORDS),
        Field("zeros", "{module}qzeros", _WORDS),
        Field("scales", "{module}scales"),
        Field("groups", "{module}g_idx", _WORDS, unless="runs of one length"),
    )
    takes = Words
    conv1d = "left"
    is_across: ClassVar[bool] = False  # whether a word holds out features
    bits: int
    group_size: int

    @abstractmethod
    def encoding_of(self, words: Words, group_size: int) -> Encoding:
        """Return what words that are there already are in."""

    def view(self, weight: Weight) -> Words | Integers | None:
        return worded(weight, self.bits)

    def write_all(self, views: Mapping[str, Words | Integers], encoding: Encoding) -> Moves:
        from anamnesis.schemes.families.integers.moving import all_symmetric, of_bits

        found, refused = of_bits(self.bits, views)
        return {**refused, **each_moved(all_symmetric(found), self._moved)}

    def _moved(self, words: Words) -> Repack:
        from anamnesis.schemes.families.integers.moving import across, columns

        parts = across(words) if self.is_across else columns(words)
        sizes = words.group_sizes(self.group_size, -1)
        ways = tuple(self.encoding_of(words, n) for n in sizes)
        return Repack(ways, self.moved(words.name, parts), is_cast=words.is_cast)

    def refuses(self, name: str, shape: tuple[int, ...], dtype: DType) -> str | None:
        from anamnesis.schemes.libraries.left_plain import linear_refusal

        return linear_refusal(name, shape, dtype)

    def leaves(self, shapes: Shapes, config: Config) -> Mapping[str, str]:
        from anamnesis.schemes.libraries.left_plain import IN_BLOCK
        from anamnesis.schemes.libraries.mtp import left_drafts

        # Their tools leave what is in no block, as lm_head is.
        outside = [name for name in shapes if not IN_BLOCK.match(name)]
        left = {} if len(outside) == len(shapes) else dict.fromkeys(outside, "in no block")
        return {**left, **left_drafts(shapes, config, "transformers")}


class Parts(NamedTuple):
    """What is stored under one module's name, in any file."""

    module: str  # with its dot
    qweight: StoredTensor
    qzeros: StoredTensor
    scales: StoredTensor
    g_idx: StoredTensor | None

    @property
    def weight_name(self) -> str:
        return f"{self.module}weight"

    @property
    def stored(self) -> tuple[StoredTensor, ...]:
        """The parts that are there, in the order of a weight's parts."""
        return tuple(part for part in self[1:] if isinstance(part, StoredTensor))

    def describe(self) -> str:
        """Return all dtypes and shapes, for messages: the first part by its name, then by role."""
        return self.module + ", ".join(
            f"{part.name.removeprefix(self.module)} {part.describe()}" for part in self.stored
        )

    def refusal(self, why: str) -> UnsupportedError:
        """Return an error that names the file, the parts and what is wrong with them."""
        where = f"{self.qweight.source.name}: " if self.qweight.source.name else ""
        return UnsupportedError(f"{where}{self.describe()}: {why}")

    def unread(self, layout: str, facts: QuantFacts) -> UnsupportedError:
        """Return the error for a layout that cannot be decoded yet."""
        where = f"{self.qweight.source.name}: " if self.qweight.source.name else ""
        return unread_error(f"{where}{self.describe()}", layout, facts)

    def mismatch(self, why: str) -> ParseError:
        """Return the error for shapes that contradict each other."""
        at, source = self.qweight.offset, self.qweight.source.name
        return ParseError(f"{self.describe()}: {why}", offset=at, source=source)


def gather(ledger: Ledger, facts: QuantFacts) -> Iterator[Parts]:
    """Yield what is unclaimed and has `qweight`, `qzeros` and `scales` in one module."""
    # A module with two of the three is refused. (`qweight` alone belongs to other encodings.)
    for qweight in ledger.free():
        name = InModules.fields[0].weight_of(qweight.name)
        if name is None:
            continue
        found = stored_parts(InModules.fields, name, ledger.find)
        qzeros, scales = found.get("zeros"), found.get("scales")
        if qzeros is None or scales is None:
            for here in filter(None, (qzeros, scales)):
                (other,) = missing(InModules.fields, found)
                error = _incomplete(qweight, here.name, other.named(name), facts)
                ledger.refuse([part.name for part in found.values()], error)
            continue
        parts = Parts(module_of(name), qweight, qzeros, scales, found.get("groups"))
        if parts.weight_name in ledger.stored:
            ledger.refuse(
                (part.name for part in parts.stored),
                parts.refusal(f"{parts.weight_name} is stored as well"),
            )
            continue
        yield parts


def _incomplete(
    qweight: StoredTensor, here: str, missing: str, facts: QuantFacts
) -> AnamnesisError:
    """Return the error for a module that lacks zero points or scales."""
    what = f"{qweight.source.name}: {qweight}"
    layout = _foreign_layout(facts)
    if layout is not None:
        return unread_error(what, layout, facts)
    given = f"; the config says {facts.declared}" if facts.declared else ""
    return UnsupportedError(
        f"{what} has {here}, but no {missing}: it may be in another shard, or the layout is one"
        f" without it{given}"
    )


def _foreign_layout(facts: QuantFacts) -> str | None:
    names = (_FOREIGN_LAYOUTS.get(name or "") for name in (facts.layout, facts.method))
    return next(filter(None, names), None)


def check_layout(parts: Parts, facts: QuantFacts) -> None:
    """Refuse what the config says is laid out for the kernels of one library, or in two ways."""
    given = sorted(facts.layouts & _GPTQ_LAYOUTS)
    if len(given) > 1:
        raise parts.refusal(
            f"one config says {given[0]!r}, another {given[1]!r}; correct one of them"
        )
    layout = _foreign_layout(facts)
    if layout is not None:
        raise parts.unread(layout, facts)
    if facts.layout in _SHOWN:
        raise parts.mismatch(f"the config says {facts.layout}, but the shapes do not")


def check_dtypes(parts: Parts) -> None:
    """Refuse words of other widths, and scales that are no plain floats."""
    for part in parts.stored:
        allowed = SCALES if part is parts.scales else _WORDS
        if part.dtype.name not in allowed:
            raise parts.refusal(f"{part.name} is {part.dtype}, {' or '.join(allowed)} is expected")
    for part in parts.stored:
        n_dims = 1 if part is parts.g_idx else 2
        if len(part.shape) != n_dims:
            raise parts.refusal(f"{part.name} should have {n_dims} dimensions")


def find_group_size(parts: Parts, in_features: int, declared: Iterable[int]) -> int | None:
    """Return the length of groups that the shapes imply, or of those the one that is declared."""
    # None where only `g_idx` can tell.
    n_groups = parts.scales.shape[0]
    if in_features == 0:
        return 1
    if n_groups == 0:
        raise parts.mismatch("there are no groups")
    given = {in_features if size < 0 else min(size, in_features) for size in declared if size}
    candidates = {size for size in given if -(-in_features // size) == n_groups}
    if not given or parts.g_idx is not None:
        candidates = candidates or block_candidates(in_features, n_groups)
    if parts.g_idx is not None:
        if n_groups > PACKED_MAX_GROUPS:
            raise LimitExceeded("PACKED_MAX_GROUPS", f"{parts.describe()}: {n_groups:,} groups")
        return candidates.pop() if len(candidates) == 1 else None
    if not candidates:
        sizes = " or ".join(f"of {size}" for size in sorted(given)) or "of one length"
        raise parts.mismatch(f"{in_features:,} in features do not make {n_groups:,} groups {sizes}")
    if len(candidates) > 1:
        sizes = " or ".join(str(size) for size in sorted(candidates))
        raise parts.refusal(f"groups may be of {sizes}; say which with group_size{OF_A_FILE}")
    return candidates.pop()
