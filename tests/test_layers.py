"""Imports point down, and never in a circle: in layers, rooms and modules.

`formats` and `schemes` are two wings of one layer that do not know each other, and so are the
families of encodings. What only type checkers read must keep to the layers too, but may be
circular; what a function imports when it is called is like any other import.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import anamnesis

PACKAGE = Path(anamnesis.__file__).parent

# Each may import those below it, and itself.
LAYERS = (
    {"__main__"},
    {"cli"},
    {"__init__"},
    {"as_safetensors", "checking", "reporting"},
    {"comparing"},
    {"editing", "opening", "saving"},
    {"pipelines"},
    {"model"},
    {"writing"},
    {"planning"},
    {"tensor"},
    {"frameworks", "operators"},
    {"convert"},
    {"architectures"},
    {"checkpoint"},
    {"schemes", "formats"},
    {"sources"},
    {"base"},
    {"_core", "_io", "_parse"},
)
HEIGHT = {part: -depth for depth, parts in enumerate(LAYERS) for part in parts}

# What a layer is parted into, in the same way: folders, or modules of their own.
ROOMS = {
    "schemes": (
        {  # functions on arrays
            *("awq", "bnb", "exl2", "exl3", "fp8", "ggml"),
            *("gptq", "int4", "int8", "mlx", "mx", "nvfp4"),
        },
        {"ways"},
        {"encodings"},
        {"families.mixed", "families.torchao"},
        {
            *("families.fp8", "families.fp4", "families.fp6", "families.integers"),
            *("families.ggml", "families.bnb", "families.codebooks"),
            *("families.exl2", "families.exl3", "families.rotated"),
        },
        {"detect"},
        {"libraries"},
        {"views"},
        {"core"},
    ),
    "convert": (
        {"fit"},
        {"conversion", "pipelines"},
        {"parts"},  # of many processes
        {"resume"},
        {"overview"},
        {"check"},
        {"write"},
        {"compare"},
        {"lora"},
        {"plan"},
        {"decide"},
        {"report"},
        {"request"},
        {"loaders"},
    ),
}


class Import(NamedTuple):
    """One module imports another, when it is imported itself or later."""

    importer: str
    imported: str
    when: str  # `at once`, `later`, or `never`: for type checkers only


def modules() -> dict[str, Path]:
    """By dotted name below `anamnesis`; a package is called by its folder."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        is_package = parts[-1] == "__init__" and len(parts) > 1
        found[".".join(parts[:-1] if is_package else parts)] = path
    return found


def imports(name: str, path: Path, known: set[str]) -> Iterator[Import]:
    """Yield what a module imports of this package, wherever in it that stands."""

    def walk(node: ast.AST, when: str) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            inner = when
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                inner = "later"
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                inner = "never"
            if isinstance(child, ast.ImportFrom) and (child.module or "").startswith("anamnesis"):
                module = (child.module or "").removeprefix("anamnesis").removeprefix(".")
                for alias in child.names:
                    whole = f"{module}.{alias.name}".removeprefix(".")
                    is_module = whole in known or whole in HEIGHT
                    yield Import(name, whole if is_module else module or "__init__", when)
            elif isinstance(child, ast.Import):
                for alias in child.names:
                    if alias.name.partition(".")[0] == "anamnesis":
                        rest = alias.name.partition(".")[2]
                        yield Import(name, rest or "__init__", when)
            yield from walk(child, inner)

    yield from walk(ast.parse(path.read_text(encoding="utf-8")), "at once")


@cache
def all_imports() -> list[Import]:
    found = modules()
    return [i for name, path in found.items() for i in imports(name, path, set(found))]


def layer(module: str) -> str:
    return module.partition(".")[0]


def test_every_module_is_of_a_layer() -> None:
    assert {layer(module) for module in modules()} <= set(HEIGHT)


@pytest.mark.parametrize("part", [part for parts in LAYERS for part in sorted(parts)])
def test_no_import_runs_up(part: str) -> None:
    up = [
        f"{i.importer} imports {i.imported}"
        for i in all_imports()
        if layer(i.importer) == part
        and layer(i.imported) != part
        and HEIGHT[layer(i.imported)] >= HEIGHT[part]
    ]
    assert up == []


def room(module: str) -> str:
    """Which part of its layer a module is in; each family is one."""
    parts = module.split(".")[1:]
    return ".".join(parts[: 2 if parts[:1] == ["families"] else 1])


@pytest.mark.parametrize("part", ROOMS)
def test_every_module_is_in_a_room(part: str) -> None:
    rooms = {room(module) for module in modules() if layer(module) == part}
    assert rooms - {"", "families"} == set().union(*ROOMS[part])


@pytest.mark.parametrize("part", ROOMS)
def test_no_import_runs_up_between_rooms(part: str) -> None:
    depth = {name: i for i, rooms in enumerate(ROOMS[part]) for name in rooms}
    up = [
        f"{i.importer} imports {i.imported}"
        for i in all_imports()
        if layer(i.importer) == layer(i.imported) == part
        and room(i.importer)
        and room(i.importer) != room(i.imported)
        and (not room(i.imported) or depth[room(i.imported)] <= depth[room(i.importer)])
    ]
    assert up == []


def test_no_circles() -> None:
    """Whenever an import runs: one within a function would only hide a circle."""
    graph: dict[str, set[str]] = {}
    for i in all_imports():
        if i.importer != i.imported and i.when != "never":
            graph.setdefault(i.importer, set()).add(i.imported)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_sees_imports(tmp_path: Path) -> None:
    """The test would see an import that runs up, in a function too."""
    path = tmp_path / "bad.py"
    path.write_text("def f():\n    from anamnesis.cli import app\nimport anamnesis.model\n")
    found = set(imports("base.bad", path, {"cli.app", "model"}))
    assert found == {Import("base.bad", "cli.app", "later"), Import("base.bad", "model", "at once")}


# --- what is private ------------------------------------------------------------------------------

# Named tuples have them for anyone.
PUBLIC = {"_replace", "_asdict", "_fields", "_make"}


def private_reaches(path: Path) -> Iterator[str]:
    """Yield private attributes that a module asks of what no class of its own is."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    own = set(PUBLIC)
    for node in ast.walk(tree):
        for made in node.body if isinstance(node, ast.ClassDef) else []:
            if isinstance(made, ast.FunctionDef):
                own.add(made.name)
            elif isinstance(made, ast.AnnAssign):
                own.add(ast.unparse(made.target))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            own |= {node.attr} if ast.unparse(node.value) == "self" else set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            of_others = ast.unparse(node.value) not in ("self", "cls", "super()")
            if of_others and not node.attr.startswith("__") and node.attr not in own:
                yield ast.unparse(node)


@pytest.mark.parametrize("part", ["cli", "convert"])
def test_nothing_private_of_another_module_is_touched(part: str) -> None:
    found = {
        name: sorted(private_reaches(path))
        for name, path in modules().items()
        if layer(name) == part
    }
    assert {name: reaches for name, reaches in found.items() if reaches} == {}


def test_sees_what_is_private(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text("class A:\n    def _a(self): self._b, row._replace()\na._a, self._b\n")
    assert list(private_reaches(path)) == []
    path.write_text("def _a(model): model._a = model._b\n")
    assert sorted(private_reaches(path)) == ["model._a", "model._b"]
