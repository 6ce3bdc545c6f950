"""What a test imports when it runs needs the mark `oracle`, which is not derived there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from helpers.tiers import HEAVY, TESTS, needs_oracle

MODULES = [p for p in sorted(TESTS.rglob("test_*.py")) if not needs_oracle(p)]


def heavy_imports(function: ast.FunctionDef) -> set[str]:
    found = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, node.module.partition(".")[0]}
    return found & HEAVY


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(TESTS).as_posix())
def test_functions_that_import_oracles_say_so(path: Path) -> None:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and heavy_imports(node):
            marks = {ast.unparse(decorator) for decorator in node.decorator_list}
            assert "pytest.mark.oracle" in marks, node.name
