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


def test_an_overlong_global_is_shortened() -> None:
    error = an.DisallowedGlobal("m" * 5000, "name")
    assert error.module == "m" * 5000
    assert error.message == (
        f"pickle refers to {'m' * 200}… (5,000 characters).name, which no tensor needs"
    )
    assert "allow_foreign=True" in str(error)
