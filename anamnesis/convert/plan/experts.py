"""Stacks of experts: which are taken apart, and what is put together."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anamnesis.base.dtypes import DType
from anamnesis.base.errors import UnsupportedError
from anamnesis.convert.plan.account import Account
from anamnesis.formats.base import Writer
from anamnesis.schemes.claim.facts import QuantFacts
from anamnesis.schemes.core.layout import ExpertsTool, StacksOf
from anamnesis.schemes.core.weight import Weight

if TYPE_CHECKING:
    from anamnesis.schemes.says.joined_experts import Made

__all__ = ["Experts", "not_put_together"]


_KEEP = "experts='keep' leaves them as they are"
_IN_GGUF = re.compile(r"(^|\.)ffn_(gate|up|down|gate_up)_exps\.weight$")


def not_put_together(name: str, why: str) -> UnsupportedError:
    """Return the error for a stack that cannot be made of single experts."""
    return UnsupportedError(f"{name!r} cannot be put together: {why}", remedy=_KEEP)


@dataclass(slots=True)
class Experts:
    """What becomes of a model's stacks of experts.

    Attributes
    ----------
    facts : QuantFacts
        What the model says of itself.
    account : Account
        Where it is counted what was taken apart, and what was put together.
    stack_of : dict of str to str
        The stacks, by the names of matrices that are pieces of them.
    pieces_of : dict of str to tuple of str
        The weights that stacks are put together of, by the names of these.
    left : dict of str to str
        The stacks that a tool leaves plain, and why.
    """

    facts: QuantFacts
    account: Account
    stack_of: dict[str, str] = field(default_factory=dict)
    pieces_of: dict[str, tuple[str, ...]] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)

    def taken_apart(
        self, weights: list[Weight], tool: ExpertsTool, why_whole: Callable[[Weight], str | None]
    ) -> list[Weight]:
        """Return the weights with stacks of experts as a tool saves them.

        That is where something of a module is to be encoded so; what else there is of it stays
        plain, matrix by matrix.

        Parameters
        ----------
        weights : list of Weight
            All of the model.
        tool : str
            Who takes them apart.
        why_whole : function
            Returns why a matrix is no reason to take its stack apart; None if it is one.
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
            if any(why_whole(piece) is None for name in made for piece in made[name]):
                pieces |= made
                self.account.taken_apart |= {name: len(made[name]) for name in made}
            else:
                self.left |= {name: why_whole(made[name][0]) or "" for name in made}
        return [piece for weight in weights for piece in pieces.get(weight.name, [weight])]

    def codes_taken_apart(
        self,
        weights: list[Weight],
        tool: ExpertsTool,
        why_whole: Callable[[Weight], str | None],
        moved: Container[str],
    ) -> list[Weight]:
        """Return the weights with all stacks in codes apart, if one of them is not moved whole.

        They are no longer left then. Those that nobody can cut stay as they are.

        Parameters
        ----------
        weights, tool, why_whole
            As of `taken_apart`.
        moved : container of str
            The names of weights whose codes are moved.
        """
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
            wanted = [name for name in made if any(why_whole(one) is None for one in made[name])]
            if wanted:
                found |= made
                is_needed = is_needed or any(name not in moved for name in wanted)
        if not is_needed:
            self.stack_of = known
            return weights
        self.left = {name: why for name, why in self.left.items() if name not in found}
        self.account.taken_apart |= {name: len(found[name]) for name in found}
        return [piece for weight in weights for piece in found.get(weight.name, [weight])]

    def put_together(
        self, weights: list[Weight], written: Callable[[Weight], DType]
    ) -> list[Weight]:
        """Return the weights with experts as the stacks that the model's own class has.

        Parameters
        ----------
        weights : list of Weight
            All of the model.
        written : function
            Returns the dtype that a matrix is written in.
        """
        if not any(".experts.0." in f".{weight.name}" for weight in weights):
            return weights
        from anamnesis.schemes.says.joined_experts import (
            joined_experts,  # only here: few have those
        )

        by_name = {weight.name: weight for weight in weights}
        return self._with_stacks(
            weights, joined_experts(by_name, written, lambda: self.facts.types)
        )

    def all_taken_apart(self, weights: list[Weight]) -> list[Weight]:
        """Return the weights with every stack as matrices, as is asked; of codes, too.

        Raises
        ------
        UnsupportedError
            If one cannot be.
        """
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

    def all_put_together(
        self,
        weights: list[Weight],
        written: Callable[[Weight], DType],
        names: StacksOf,
        *,
        in_codes: bool,
    ) -> list[Weight]:
        """Return the weights with all single experts as stacks, as is asked; of codes, too.

        Parameters
        ----------
        weights, written
            As of `put_together`.
        names : str
            Whose stacks they are.
        in_codes : bool
            Whether codes are joined where they lie, because they may be moved.

        Raises
        ------
        UnsupportedError
            If some cannot be.
        """
        from anamnesis.schemes.says.joined_experts import (
            every_stack_of_singles,  # only here: it is rarely asked
        )

        by_name = {weight.name: weight for weight in weights}
        types = self.facts.types
        made = every_stack_of_singles(by_name, written, types, names, in_codes=in_codes)
        return self._with_stacks(weights, made)

    def names_beside(self, name: str) -> tuple[str, ...]:
        """Return what patterns may call a weight, too: its stack, or a piece of it, all alike."""
        if name in self.pieces_of:
            return self.pieces_of[name][:1]
        return (self.stack_of[name],) if name in self.stack_of else ()

    def check_container(self, weights: list[Weight], writer: Writer, *, is_split: bool) -> None:
        """Refuse to rearrange what GGUF has, whose names of experts are its own.

        Raises
        ------
        UnsupportedError
        """
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
