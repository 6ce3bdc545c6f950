"""Stacks of experts: which are taken apart, and what is put together."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anamnesis.base.errors import UnsupportedError
from anamnesis.convert.plan.account import Account
from anamnesis.convert.plan.asked import Asked
from anamnesis.formats.base import Writer
from anamnesis.schemes.claim.facts import QuantFacts
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.layout import ExpertsTool
from anamnesis.schemes.core.plain_encoding import PlainEncoding
from anamnesis.schemes.core.weight import Weight

if TYPE_CHECKING:
    from anamnesis.schemes.says.joined_experts import Made

_KEEP = "experts='keep' leaves them as they are"
_IN_GGUF = re.compile(r"(^|\.)ffn_(gate|up|down|gate_up)_exps\.weight$")


@dataclass(slots=True)
class Experts:
    """What becomes of a model's stacks of experts."""

    facts: QuantFacts
    account: Account
    stack_of: dict[str, str] = field(default_factory=dict)
    pieces_of: dict[str, tuple[str, ...]] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)

    def names_beside(self, name: str) -> tuple[str, ...]:
        """Return what patterns may call a weight, too: its stack, or a piece of it, all alike."""
        if name in self.pieces_of:
            return self.pieces_of[name][:1]
        return (self.stack_of[name],) if name in self.stack_of else ()

    def taken_apart(self, weights: list[Weight], tool: ExpertsTool, asked: Asked) -> list[Weight]:
        """Return the weights with stacks of experts as a tool saves them.

        That is where something of a module is to be encoded so; what else there is of it stays
        plain, matrix by matrix.
        """
        from anamnesis.schemes.says.experts import (
            stacked_experts,  # only here: most models have none
        )

        by_name = {weight.name: weight for weight in weights}
        pieces: dict[str, list[Weight]] = {}
        for stacks in stacked_experts(by_name, tool, lambda: self.facts.types):
            if stacks.why_not is not None:
                self.left.update(dict.fromkeys(stacks.names, stacks.why_not))
                continue
            made = stacks.taken_apart(by_name)
            self.stack_of |= {piece.name: name for name in made for piece in made[name]}
            if any(_why_whole(piece, asked) is None for name in made for piece in made[name]):
                pieces |= made
                self.account.taken_apart |= {name: len(made[name]) for name in made}
            else:
                self.left |= {name: _why_whole(made[name][0], asked) or "" for name in made}
        asked.left = {**asked.left, **self.left}
        return [piece for weight in weights for piece in pieces.get(weight.name, [weight])]

    def codes_taken_apart(
        self,
        weights: list[Weight],
        tool: ExpertsTool,
        asked: Asked,
        moved: Container[str],
    ) -> list[Weight]:
        """Return the weights with all stacks in codes apart, if one of them is not moved whole.

        They are no longer left then. Those that nobody can cut stay as they are.
        """
        left = {name: why for name, why in asked.left.items() if name not in self.left}
        asked.left = left
        weights = self._codes_taken_apart(weights, tool, asked, moved)
        asked.left = {**left, **self.left}
        return weights

    def _codes_taken_apart(
        self, weights: list[Weight], tool: ExpertsTool, asked: Asked, moved: Container[str]
    ) -> list[Weight]:
        from anamnesis.schemes.says.experts import (
            IN_CODES,  # only here: most models have none
            stacked_experts,
        )

        left = [name for name, why in self.left.items() if why == IN_CODES]
        if all(name in moved for name in left):
            return weights
        by_name = {weight.name: weight for weight in weights}
        found: dict[str, list[Weight]] = {}
        known, is_needed = dict(self.stack_of), False
        for stacks in stacked_experts(by_name, tool, lambda: self.facts.types, in_codes=True):
            if stacks.why_not is not None:
                self.left.update(dict.fromkeys(stacks.names, stacks.why_not))
                continue
            try:
                made = stacks.taken_apart(by_name)
            except UnsupportedError:
                continue
            self.stack_of |= {piece.name: name for name in made for piece in made[name]}
            wanted = [
                name for name in made if any(_why_whole(w, asked) is None for w in made[name])
            ]
            if wanted:
                found |= made
                is_needed = is_needed or any(name not in moved for name in wanted)
        if not is_needed:
            self.stack_of = known
            return weights
        self.left = {name: why for name, why in self.left.items() if name not in found}
        self.account.taken_apart |= {name: len(found[name]) for name in found}
        return [piece for weight in weights for piece in found.get(weight.name, [weight])]

    def put_together(self, weights: list[Weight], asked: Asked) -> list[Weight]:
        """Return the weights with experts as the stacks that the model's own class has."""
        if not any(".experts.0." in f".{weight.name}" for weight in weights):
            return weights
        from anamnesis.schemes.says.joined_experts import (
            joined_experts,  # only here: few have those
        )

        by_name = {weight.name: weight for weight in weights}
        return self._with_stacks(
            weights, joined_experts(by_name, asked.dtype_of_piece, lambda: self.facts.types)
        )

    # --- as is asked ---------------------------------------------------------------------------

    def as_asked(self, weights: list[Weight], asked: Asked, writer: Writer) -> list[Weight]:
        """Return the weights with experts as is asked: stacked, split, or as they are."""
        request = asked.request
        if request.experts == "keep":
            return weights
        if request.experts == "split":
            made = self._all_taken_apart(weights)
        else:
            made = self._all_put_together(weights, asked)
            self._check_put_together({weight.name: weight for weight in weights}, asked)
        self._check_container(weights, writer, is_split=request.experts == "split")
        return made

    def _all_taken_apart(self, weights: list[Weight]) -> list[Weight]:
        """Return the weights with every stack as matrices, as is asked; of codes, too."""
        from anamnesis.schemes.says.experts import every_stack  # only here: it is rarely asked

        by_name = {weight.name: weight for weight in weights}
        pieces: dict[str, list[Weight]] = {}
        for stacks in every_stack(by_name, self.facts.types):
            made = stacks.taken_apart(by_name)
            pieces |= made
            self.stack_of |= {piece.name: name for name in made for piece in made[name]}
            self.account.taken_apart |= {name: len(made[name]) for name in made}
        for name in self.stack_of:
            if name in by_name:
                raise UnsupportedError(
                    f"{self.stack_of[name]!r} cannot be taken apart: there is a weight {name!r}"
                    " already",
                    remedy=_KEEP,
                )
        return [piece for weight in weights for piece in pieces.get(weight.name, [weight])]

    def _all_put_together(self, weights: list[Weight], asked: Asked) -> list[Weight]:
        """Return the weights with all single experts as stacks, as is asked.

        Codes are joined where they lie, because they may be moved.
        """
        from anamnesis.schemes.says.joined_experts import (
            every_stack_of_singles,  # only here: it is rarely asked
        )

        request = asked.request
        holds = None if request.encoding is None else request.encoding.layout.stacks_of
        made = every_stack_of_singles(
            {weight.name: weight for weight in weights},
            asked.dtype_of_piece,
            self.facts.types,
            holds or "transformers",
            in_codes=request.encoding is not None or bool(request.overrides),
        )
        return self._with_stacks(weights, made)

    def _check_put_together(self, weights: Mapping[str, Weight], asked: Asked) -> None:
        """Refuse stacks that the encoding does not hold, or whose pieces are asked for apart."""
        encoding = asked.request.encoding
        for stack, names in self.pieces_of.items():
            pieces = [weights[name] for name in names]
            ways = {(asked.wants(piece), asked.override(piece)) for piece in pieces}
            if len(ways) > 1:
                raise _not_put_together(stack, "its pieces are asked for in different ways")
            wanted, override = ways.pop()
            way = override[1] if override else encoding if wanted else None
            if way is not None and any(_is_only_single(piece, way, asked) for piece in pieces):
                raise _not_put_together(stack, f"{way.id} has no stacks of experts")
            if override and override[1] is None:
                raise _not_put_together(stack, "its pieces are to be kept as they are stored")

    def _check_container(self, weights: list[Weight], writer: Writer, *, is_split: bool) -> None:
        """Refuse to rearrange what GGUF has, whose names of experts are its own."""
        changed = [*self.account.taken_apart, *self.account.put_together]
        found = changed if writer.id == "gguf" else []
        if is_split:
            found = [*found, *(w.name for w in weights if _IN_GGUF.search(w.name))]
        if found:
            raise UnsupportedError(
                f"{found[0]!r}: GGUF has experts as stacks under names of its own,"
                " which stay as they are",
                remedy=_KEEP,
            )

    def _with_stacks(self, weights: list[Weight], made: Iterable[Made]) -> list[Weight]:
        place: dict[str, list[Weight]] = {}
        for stack, pieces in made:
            place |= {name: [] for name in pieces} | {pieces[0]: [stack]}
            self.pieces_of[stack.name] = pieces
            self.account.put_together[stack.name] = len(pieces)
        return [one for weight in weights for one in place.get(weight.name, [weight])]


def _not_put_together(name: str, why: str) -> UnsupportedError:
    """Return the error for a stack that cannot be made of single experts."""
    return UnsupportedError(f"{name!r} cannot be put together: {why}", remedy=_KEEP)


def _is_only_single(weight: Weight, encoding: Encoding, asked: Asked) -> bool:
    """Tell whether an encoding takes a matrix, and not a stack of its like."""
    has_stacks = encoding.layout.stacks_of is not None or isinstance(encoding, PlainEncoding)
    return not has_stacks and asked.why_unfit(weight, asked.fitted(weight, encoding)) is None


def _why_whole(weight: Weight, asked: Asked) -> str | None:
    """Return why a matrix is no reason to take its stack apart; None if it is one."""
    override = asked.override(weight)
    encoding = asked.request.encoding if override is None else override[1]
    if encoding is None or encoding.layout.experts_tool is None:
        return "a stack of experts"
    if override is not None:
        return None
    return asked.why_plain(weight, asked.fitted(weight, encoding))
