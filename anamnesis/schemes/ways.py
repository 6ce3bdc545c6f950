"""What becomes of codes between each two encodings: `WAYS`."""

from __future__ import annotations

from collections.abc import Mapping

from anamnesis.base.plain_json import json_table
from anamnesis.schemes.encodings import ENCODINGS, TAKING

_NAMES = (*ENCODINGS, *TAKING)
_ROWS = {
    (target, source): (how, why)
    for how, why, targets, sources in json_table(__file__)
    for target in targets.split()
    for source in sources.split()
}
# By target and source, in the order of the encodings: how codes come over, and why some of them do
# not; by tools/ways.py.
WAYS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    target: {source: _ROWS[target, source] for source in _NAMES if (target, source) in _ROWS}
    for target in _NAMES
}
