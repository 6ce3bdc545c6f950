"""Errors are copied and pickled with all that they say."""

from __future__ import annotations

import copy
import pickle

import pytest

import anamnesis as an


@pytest.mark.parametrize(
    "error",
    [
        an.ParseError("broken", offset=7, source="a.gguf"),
        an.UnsupportedError("unknown"),
        an.LimitExceeded("max_item_count", "too many"),
        an.DisallowedGlobal("os", "system"),
        an.OutputError("exists"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_copies(error: an.AnamnesisError) -> None:
    for again in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)
