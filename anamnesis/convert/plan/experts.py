"""Stacks of experts: which are taken apart, and what is put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from anamnesis.base.dtypes import DType
from anamnesis.convert.plan.account import Account
from anamnesis.schemes.claim.facts import QuantFacts
from anamnesis.schemes.core.layout import ExpertsTool
from anamnesis.schemes.core.weight import Weight

__all__ = ["Experts"]


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
    left : dict of str to str
        The stacks that a tool leaves plain, and why.
    """

    facts: QuantFacts
    account: Account
    stack_of: dict[str, str] = field(default_factory=dict)
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
        place: dict[str, list[Weight]] = {}
        for stack in joined_experts(by_name, written, lambda: self.facts.types):
            pieces = [piece.name for piece in stack.made_of]
            place |= {name: [] for name in pieces} | {pieces[0]: [stack]}
            self.account.put_together[stack.name] = len(pieces)
        return [made for weight in weights for made in place.get(weight.name, [weight])]
