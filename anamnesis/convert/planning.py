"""What a conversion would write, without what writes it."""

from __future__ import annotations

from anamnesis.checkpoint.open import Checkpoint
from anamnesis.convert.ask.request import Request
from anamnesis.convert.plan.choice import Choice
from anamnesis.convert.plan.naming import seen_as_asked
from anamnesis.convert.plan.outputs import make_plan
from anamnesis.convert.plan.plan import Plan
from anamnesis.schemes.claim.ledger import Ledger


def plan(
    checkpoint: Checkpoint, ledger: Ledger, request: Request, measure: bool | int = False
) -> Plan:
    """Return what a conversion would write: a directory if the model is one, and that may be."""
    seen = seen_as_asked(checkpoint, ledger.without(request.drop), request)
    choice = Choice(seen.checkpoint, seen.ledger, seen.request)
    seen.account_for(choice.account)
    made = make_plan(seen.checkpoint, choice, choice.request)
    made.names, made.otherwise = seen.names, seen.otherwise
    if measure:
        from anamnesis.convert.write import sample  # only here, for the sake of a quick start

        n_bands = None if measure is True else measure
        made.measured = sample.measure(made, n_bands, request.how)
    return made
