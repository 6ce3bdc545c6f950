"""What a conversion would write, without what writes it."""

from __future__ import annotations

from anamnesis.checkpoint.open import Checkpoint
from anamnesis.convert.decide.decide import decide
from anamnesis.convert.decide.renames import seen_as_asked
from anamnesis.convert.plan.outputs import make_plan
from anamnesis.convert.plan.plan import Plan
from anamnesis.convert.request.request import Request
from anamnesis.schemes.detect.ledger import Ledger


def plan(
    checkpoint: Checkpoint, ledger: Ledger, request: Request, measure: bool | int = False
) -> Plan:
    """Return what a conversion would write: a directory if the model is one, and that may be."""
    made = make_plan(decide(seen_as_asked(checkpoint, ledger, request)))
    if measure:
        from anamnesis.convert.write import sample

        n_bands = None if measure is True else measure
        made.measured = sample.measure(made, n_bands, request.how)
    return made
