"""What C reads of an archive's directory is what Python reads of it, and costs the same."""

from __future__ import annotations

from unittest import mock

import anamnesis as an
from anamnesis import _parse
from anamnesis.base.limits import Budget
from anamnesis.formats.zip.members import read_directory
from anamnesis.sources.memory import BufferSource


def _members(raw: bytes, limits: an.ParseLimits) -> object:
    budget = Budget(limits)
    try:
        directory = read_directory(BufferSource(raw), budget)
    except an.AnamnesisError as error:
        return str(error)
    found = []
    for entry in directory.entries.values():
        try:
            at: object = directory.data_offset(entry)
        except an.AnamnesisError as error:
            at = str(error)
        found.append((entry._replace(header_bytes=0), at))
    return found, budget.bytes_used, budget.items_used


def check_members(raw: bytes, limits: an.ParseLimits) -> None:
    """Read an archive's directory with and without what C takes of it."""
    usual = _members(raw, limits)
    with mock.patch.object(_parse, "zip_members", return_value=None):
        assert _members(raw, limits) == usual
