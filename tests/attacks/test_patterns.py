"""Every regular expression of the package takes time that grows as the text and no faster."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

import pytest

import anamnesis

PACKAGE = Path(anamnesis.__file__).parent

# Constants that are compiled when they are first needed.
LAZY = {
    "anamnesis.formats.safetensors.read": (
        *("_WS", "_INT", "_LIST", "_INTEGERS", "_LITERAL", "_REST_OF_STRING"),
    ),
    "anamnesis.base.sizes": ("_SIZE",),
    "anamnesis.schemes.core.roles": ("_ROLES",),
}

# Who compiles patterns that the user gives, which are no concern of the input's.
USERS = {
    *("anamnesis.convert.request.request", "anamnesis.convert.decide.decided"),
    "anamnesis.base.patterns",
    *("anamnesis.convert.request.kinds", "anamnesis.schemes.families.ggml.choose"),
    "anamnesis.convert.lora.adapter",  # an adapter's config: without what may take long
    *("anamnesis.checkpoint.model_files", "anamnesis.cli.errors"),  # a word and a path, escaped
    # which write theirs, to be read by others or of words of their own
    *("anamnesis.schemes.libraries.endings", "anamnesis.schemes.libraries.mlx_models"),
    *(
        "anamnesis.schemes.families.integers.layouts.gptq",
        "anamnesis.schemes.families.integers.layouts.gptq_and_awq",
    ),
}

MOST_SECONDS = 0.25  # of the processor's time; linear patterns take a hundredth of it
LONGEST = 20_000  # characters
REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)
SINGLE = [[op.IN], [op.LITERAL], [op.NOT_LITERAL], [op.ANY]]
SUFFIXES = ("", "\0", "!x")


# --- all patterns ---------------------------------------------------------------------------------


def modules() -> list[str]:
    found = pkgutil.walk_packages([str(PACKAGE)], "anamnesis.")
    return [module.name for module in found if not module.name.endswith("__main__")]


def held(value: Any) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, (tuple, list, set, frozenset)):
        for item in value:
            yield from held(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from held(item)


def patterns() -> dict[str, re.Pattern[Any]]:
    found: dict[str, re.Pattern[Any]] = {}
    for module_name in modules():
        module = importlib.import_module(module_name)
        for name, value in vars(module).items():
            for i, pattern in enumerate(held(value)):
                found[f"{module_name}.{name}{f'[{i}]' if i else ''}"] = pattern
        for name in LAZY.get(module_name, ()):
            lazy = vars(module)[name]
            texts = [text for _, text in lazy] if isinstance(lazy, tuple) else [lazy]
            for i, text in enumerate(texts):
                found[f"{module_name}.{name}[{i}]"] = re.compile(text, re.DOTALL)
    return found


PATTERNS = patterns()


@pytest.mark.slow
def test_all_patterns_are_found() -> None:
    """They are compiled at the top of a module, but where `LAZY` says."""
    n_compiled = 0
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        at_the_top = [node for node in tree.body if isinstance(node, (ast.Assign, ast.AnnAssign))]
        n_top = sum(map(n_uses_of_re, at_the_top))
        assert n_top == n_uses_of_re(tree) or name in LAZY or name in USERS, path
        n_compiled += n_top
    assert 10 < n_compiled <= len(PATTERNS)


def n_uses_of_re(tree: ast.AST) -> int:
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return sum(ast.unparse(called).startswith("re.") for called in calls)


def groups_repeated_possessively(tree: Any) -> Iterator[Any]:
    for kind, value in tree:
        if kind is op.POSSESSIVE_REPEAT and [part for part, _ in value[2]] not in SINGLE:
            yield value
        for inner in inner_trees(kind, value):
            yield from groups_repeated_possessively(inner)


@pytest.mark.parametrize("name", PATTERNS)
def test_no_group_is_repeated_possessively(name: str) -> None:
    """Python before 3.11.5 matches such patterns wrongly."""
    pattern = PATTERNS[name].pattern
    flags = re.UNICODE if isinstance(pattern, str) else 0
    assert not list(groups_repeated_possessively(_parser.parse(pattern, flags)))


def test_a_group_repeated_possessively_is_noticed() -> None:
    assert list(groups_repeated_possessively(_parser.parse(r"\[((?:1(?:,1)*+)?+)\]")))


# --- texts that make them go back -----------------------------------------------------------------


def examples(tree: Any) -> list[str]:
    """Return texts that match, in which each alternative of the pattern stands at least once."""
    parts = [node_examples(*node) for node in tree]
    n = max(map(len, parts), default=1)
    return ["".join(part[i % len(part)] for part in parts) for i in range(n)]


def node_examples(kind: Any, value: Any) -> list[str]:
    if kind is op.LITERAL:
        return [chr(value)]
    if kind is op.IN:
        return members(value)
    if kind in (op.ANY, op.NOT_LITERAL):
        return ["x"]
    if kind is op.BRANCH:
        return [text for branch in value[1] for text in examples(branch)]
    if kind is op.SUBPATTERN:
        return examples(value[-1])
    if kind is op.ATOMIC_GROUP:
        return examples(value)
    if kind in REPEATS:
        low, _, tree = value
        return [text * max(low, 1) for text in examples(tree)] + ([""] if low == 0 else [])
    return [""]


def members(value: list[tuple[Any, Any]]) -> list[str]:
    if value[0][0] is op.NEGATE:
        return ["x", " "]
    found = []
    for kind, item in value:
        if kind is op.RANGE:
            found.append(chr(item[0]))
        else:
            found.append(chr(item) if kind is op.LITERAL else "1")
    return found


def pumps(tree: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield what comes before each repeated part of a pattern, and what it repeats."""
    for kind, value in tree:
        for inner in inner_trees(kind, value):
            yield from pumps(inner, prefix)
        if kind in REPEATS and value[1] > 8:
            units = [unit for unit in examples(value[2]) if unit]
            yield from ((prefix, unit) for unit in units)
            yield from ((prefix, a + b) for a, b in product(units[:6], repeat=2) if a != b)
        prefix += node_examples(kind, value)[0]


def inner_trees(kind: Any, value: Any) -> list[Any]:
    if kind is op.BRANCH:
        return list(value[1])
    if kind is op.SUBPATTERN:
        return [value[-1]]
    if kind is op.ATOMIC_GROUP:
        return [value]
    return [value[2]] if kind in REPEATS else []


def lengths() -> Iterator[int]:
    """Yield numbers of repetitions, slowly at first: what doubles with each must not hang."""
    n = 8.0
    while n < LONGEST:
        yield int(n)
        n *= 1.1 if n < 40 else 2


def is_slow(pattern: re.Pattern[Any], *, searches: bool) -> str | None:
    """Return a text for which a pattern takes too long."""
    source = pattern.pattern
    is_bytes = isinstance(source, bytes)
    flags = pattern.flags & ~re.UNICODE if is_bytes else pattern.flags
    tree = _parser.parse(source, flags)
    uses = [pattern.fullmatch, pattern.match, *([pattern.search] if searches else [])]
    for (prefix, unit), suffix in product(dict.fromkeys(pumps(tree)), SUFFIXES):
        for n in lengths():
            if n * len(unit) > LONGEST:
                break
            text: Any = prefix + unit * n + suffix
            text = text.encode("latin-1") if is_bytes else text
            start = time.thread_time()
            for use in uses:
                use(text)
            if time.thread_time() - start > MOST_SECONDS:
                return f"{prefix!r} + {unit!r} * {n} + {suffix!r}"
    return None


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PATTERNS)
def test_time_is_linear(name: str) -> None:
    module, _, variable = name.partition("[")[0].rpartition(".")
    code = Path(importlib.import_module(module).__file__ or "").read_text(encoding="utf-8")
    searches = any(f"{variable}.{verb}(" in code for verb in ("search", "sub", "finditer", "split"))
    assert is_slow(PATTERNS[name], searches=searches) is None


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "source",
    [
        r"(?:[-_.](?:fp8|scaled)(?:[-_.](?:kv|scaled))*)+$",
        r"(?:a*)*b",
        r"(?:ab|a|b)+c",
        r"[0-9]+(?:\.[0-9]*)*[0-9]*x",
    ],
)
def test_slow_patterns_are_told(source: str) -> None:
    assert is_slow(re.compile(source), searches=True) is not None
