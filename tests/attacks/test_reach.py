"""The fuzzer of schemes builds weights of every family that is read: each is decoded here.

What families there are, the registries say: a scheme, a finder, a class of weights, a format of
floats, a packing or a kernel that no builder reaches fails a test.
"""

from __future__ import annotations

import json
import os
import pkgutil
import random
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import anamnesis as an
from anamnesis import _core, schemes
from anamnesis.formats.torch.torchao import READ
from anamnesis.schemes.core.plain import Plain
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.detect.registry import FAMILIES, reader
from anamnesis.schemes.families.fp4.formats import FORMATS
from anamnesis.schemes.families.fp4.weight import Fp4Weight
from anamnesis.schemes.families.integers.layouts import awq, gptq
from anamnesis.schemes.families.integers.weight import IntegerWeight
from anamnesis.schemes.families.integers.words import PackedWeight

pytestmark = pytest.mark.slow

ROOT = os.environ.get("ANAMNESIS_REAL")
CHECKPOINTS = sorted(p.with_suffix("") for p in Path(ROOT, "modern").glob("*.json")) if ROOT else []
FOLDS: Any = {"fold_pre_quant_scale": True}
TRIES = 150  # of each builder
NOT_MADE = {"gguf-nvfp4", "gguf-mxfp4"}  # formats that codes are only repacked to and from
# Of conversions.
NOT_READ = {"Edited", "Gathered", "GatheredColumns", "InDtype", "Joined", "Reshaped", "Seen"}
NUMBER = re.compile(r"\d+")

Mark = tuple[str, str]


class Watch:
    """Notes which scheme and which finder each weight comes from."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.sources: dict[int, set[Mark]] = {}
        self.kept: list[Weight] = []  # so that their ids stay their own
        for name, module in readers().items():
            patch.setattr(module, "find_all", self._scheme(name, module.find_all))
        for table in finders():
            for dtype, found in list(table.items()):
                patch.setitem(table, dtype, tuple(map(self._finder, found)))

    def _scheme(self, name: str, find: Callable[..., None]) -> Callable[..., None]:
        @wraps(find)
        def found(account: Ledger, facts: Any) -> None:
            before = set(account.weights)
            find(account, facts)
            for weight in account.weights.keys() - before:
                self.note(account.weights[weight], "scheme", name)

        return found

    def _finder(self, find: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(find)
        def finds(*args: Any) -> Any:
            weight = find(*args)
            if weight is not None:
                self.note(weight, "finder", called(find))
            return weight

        return finds

    def note(self, weight: Weight, kind: str, name: str) -> None:
        self.sources.setdefault(id(weight), set()).add((kind, name))
        self.kept.append(weight)


def called(find: Callable[..., Any]) -> str:
    return f"{find.__module__}.{find.__name__}"


def modules() -> Iterator[Any]:
    for found in pkgutil.walk_packages(schemes.__path__, "anamnesis.schemes."):
        yield import_module(found.name)


def readers() -> dict[str, Any]:
    """The modules that find weights: of whole families, and of producers within one."""
    found = [module for module in modules() if getattr(module, "find_all", None)]
    own = {m.__name__: m for m in found if m.find_all.__module__ == m.__name__}
    assert {reader(name).__name__ for name in FAMILIES} <= own.keys()
    return own


def finders() -> list[dict[str, Any]]:
    return [module._FINDERS for module in modules() if hasattr(module, "_FINDERS")]


def marks(weight: Weight) -> Iterator[Mark]:
    """What a decoded weight is a proof of."""
    yield "class", type(weight).__name__
    yield "scheme in words", NUMBER.sub("N", weight.scheme)
    inner = getattr(weight, "stored", None) or getattr(weight, "dense", None)
    if isinstance(inner, Weight):
        yield from marks(inner)
    if isinstance(weight, Fp4Weight):
        yield "format", weight.format.id
    if isinstance(weight, PackedWeight):
        yield "packing", weight.packing.kernel
    if isinstance(weight, IntegerWeight):
        yield "kernel", weight.kernel


def expected() -> set[Mark]:
    """All that the registries have."""
    classes = {kind for module in modules() for kind in vars(module).values() if is_weight(kind)}
    packings = [*gptq.PACKINGS.values(), *gptq.PLANAR.values(), awq.PACKING]
    return {
        *(("scheme", name) for name in readers()),
        *(("finder", called(f)) for table in finders() for found in table.values() for f in found),
        *(("class", kind.__name__) for kind in classes if kind.__name__ not in NOT_READ),
        *(("format", name) for name in FORMATS.keys() - NOT_MADE),
        *(("packing", packing.kernel) for packing in packings),
        *(("kernel", name) for name in _core.INTEGERS),
        *(("torchao", path.rpartition(".")[2]) for path in READ),
    }


def is_weight(kind: Any) -> bool:
    """Return whether it is a class of quantised weights, and not the base of some."""
    if not isinstance(kind, type) or not issubclass(kind, Weight) or kind.__name__[0] == "_":
        return False
    return kind.__module__ != Plain.__module__ and not kind.__abstractmethods__


def decoded(watch: Watch, model: an.Model) -> Iterator[Mark]:
    """Decode all weights of a model that can be; yield what they are a proof of."""
    for name in model.keys() - model.problems.keys():
        weight = model._ledger.weights[name]
        with suppress(an.AnamnesisError):
            model[name].numpy()
            yield from marks(weight)
            yield from watch.sources.get(id(weight), ())
            told = str(model.metadata.get(name, ""))
            if told.startswith('{"_type": '):
                yield "torchao", json.loads(told)["_type"]


@pytest.fixture(scope="module")
def watch() -> Iterator[Watch]:
    with pytest.MonkeyPatch.context() as patch:
        yield Watch(patch)


@pytest.fixture(scope="module")
def reached(watch: Watch, tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[Mark]]:
    """What the inputs of each builder prove, without any that are spoiled."""
    structured, builders = import_module("structured"), import_module("structured_schemes")
    folder = tmp_path_factory.mktemp("reach")
    random.seed(0)
    found: dict[str, set[Mark]] = {}
    for family in builders.FAMILIES:
        of_family = found.setdefault(called(family), set())
        for _ in range(TRIES):
            choices = structured.Choices(random.randbytes(400))
            raw, config = builders.checkpoint_of(choices, {"a.weight": family})
            (folder / "model.safetensors").write_bytes(raw)
            (folder / "config.json").write_text(json.dumps(config or {}))
            with suppress(an.AnamnesisError), an.parse(folder, **FOLDS) as model:
                of_family |= set(decoded(watch, model))
    for name, build in (
        ("a pickle", import_module("structured_torchao").torchao_file),
        ("GGUF", import_module("structured_gguf").gguf_file),
    ):
        of_family = found.setdefault(name, set())
        for _ in range(TRIES):
            raw = build(structured.Choices(random.randbytes(400)))
            with suppress(an.AnamnesisError), an.parse(raw) as model:
                of_family |= set(decoded(watch, model))
    return found


def test_each_builder_builds_what_is_read(reached: dict[str, set[Mark]]) -> None:
    quantised = {
        name: {mark for mark in found if mark[0] == "scheme"} for name, found in reached.items()
    }
    assert [name for name, found in quantised.items() if not found] == []


def test_every_family_is_reached(reached: dict[str, set[Mark]]) -> None:
    assert expected() - set().union(*reached.values()) == set()


def test_each_class_of_torchao_is_read_from_pickles(reached: dict[str, set[Mark]]) -> None:
    classes = {name for kind, name in reached["a pickle"] if kind == "torchao"}
    assert classes == {path.rpartition(".")[2] for path in READ}


@pytest.mark.skipif(not ROOT, reason="ANAMNESIS_REAL names no folder of checkpoints")
def test_what_libraries_write_is_reached(watch: Watch, reached: dict[str, set[Mark]]) -> None:
    """Every scheme of the checkpoints that libraries made, by its words."""
    assert len(CHECKPOINTS) >= 118
    wanted = set()
    for checkpoint in CHECKPOINTS:
        with an.parse(checkpoint) as model:
            wanted |= {mark for mark in decoded(watch, model) if mark[0] == "scheme in words"}
    assert wanted - set().union(*reached.values()) == set()
