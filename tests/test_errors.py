"""Errors are copied and pickled with all that they say."""

from __future__ import annotations

import ast
import copy
import inspect
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import anamnesis as an
from anamnesis.convert.request.request import ConvertOptions

PACKAGE = Path(an.__file__).parent


@pytest.mark.parametrize(
    "error",
    [
        an.ParseError("broken", offset=7, source="a.gguf"),
        an.UnsupportedError("unknown", remedy="force=True reads it"),
        an.LimitExceeded("max_item_count", "too many"),
        an.DisallowedGlobal("os", "system"),
        an.OutputError("exists"),
        an.Cancelled("cancelled"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_copies(error: an.AnamnesisError) -> None:
    for again in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)


def test_a_remedy_stands_behind_the_message() -> None:
    error = an.ParseError("broken", offset=7, source="a.gguf", remedy="force=True mends it")
    assert error.message == "a.gguf: broken (at byte 7)"
    assert error.remedy == "force=True mends it"
    assert str(error) == "a.gguf: broken (at byte 7); force=True mends it"


def texts() -> Iterator[tuple[str, str]]:
    """Yield every string of the library's own that is no docstring, with its file."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.parent.name == "cli" or path == PACKAGE / "convert" / "request" / "options.py":
            continue  # the one table of what both sides call an option
        tree = ast.parse(path.read_bytes())
        alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if id(node) in alone or not isinstance(node, ast.Constant):
                continue
            if isinstance(node.value, str):
                yield path.name, node.value


def test_the_library_speaks_of_arguments() -> None:
    arguments = {
        *inspect.signature(an.parse).parameters,
        *inspect.signature(an.Model.remember).parameters,
        *inspect.signature(an.Model.state_dict).parameters,
        *inspect.signature(an.Model.fit).parameters,
        *ConvertOptions.__annotations__,
        *inspect.signature(an.Model.fit).parameters,
    }
    of_others = {"weights_only", "dequantize"}  # of torch.load, and of transformers' configs
    named = set()
    for file, text in texts():
        assert not re.search(r"(^|\s)--[a-z]|\s-o\b", text), (file, text)
        named |= set(re.findall(r"\b([a-z]\w*)=(?:True|False|\.\.\.)", text))
    assert {"force", "resume", "allow_unknown", "allow_foreign", "conv1d"} <= named
    assert named <= arguments | of_others


def test_an_overlong_global_is_shortened() -> None:
    error = an.DisallowedGlobal("m" * 5000, "name")
    assert error.module == f"{'m' * 200}… (5,000 characters)"
    assert error.message == (
        f"pickle refers to {'m' * 200}… (5,000 characters).name, which no tensor needs"
    )
    assert "allow_foreign=True" in str(error)
