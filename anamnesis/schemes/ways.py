"""What becomes of codes between each two encodings: `WAYS`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from anamnesis.base.plain_json import json_table
from anamnesis.schemes.encodings import ENCODINGS, TAKING


def _by_target(
    rows: Iterable[tuple[str, str, str, str]],
) -> Mapping[str, Mapping[str, tuple[str, str]]]:
    """Return rows by target and source, in the order of the encodings."""
    found = {
        (target, source): (how, why)
        for how, why, targets, sources in rows
        for target in targets.split()
        for source in sources.split()
    }
    names = (*ENCODINGS, *TAKING)
    return {
        target: {source: found[target, source] for source in names if (target, source) in found}
        for target in names
    }


# By target and source: how codes come over, and why some of them do not; by tools/ways.py.
WAYS = _by_target(json_table(__file__))
