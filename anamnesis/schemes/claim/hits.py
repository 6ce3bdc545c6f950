"""What is said of single layers, under the names that the model has for them.

Tools name layers as they know them: `blocks.4.attn.wo`, where the file has it as
`model.diffusion_model.blocks.4.attn.wo.weight`. A statement that names no layer would be dropped,
and its layer decoded as if nothing were said of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from anamnesis.base.errors import ParseError
from anamnesis.base.nearest import did_you_mean
from anamnesis.schemes.claim.facts import COMFY_METADATA_KEY, QuantFacts

T = TypeVar("T")

_REMEDY = "correct these names, or remove what is said of them"


def with_hits(facts: QuantFacts, names: Iterable[str], *, is_whole: bool) -> QuantFacts:
    """Facts whose statements about layers are found by the names of the model's modules."""
    default = facts.layers.get("")
    single = {name: layer for name, layer in facts.layers.items() if name}
    if not facts.comfy_layers and not single:
        return facts
    modules = dict.fromkeys(name.rpartition(".")[0] for name in names)
    comfy = _found(facts.comfy_layers, modules, f"__metadata__ {COMFY_METADATA_KEY}")
    layers = _found(single, modules, "the config")
    _check(dict.fromkeys(facts.comfy_layers), comfy, modules, COMFY_METADATA_KEY)
    if is_whole and (facts.declared or "").startswith("mlx"):
        others = {name: layer for name, layer in single.items() if layer != default}
        _check(others, layers, modules, "the config")
    return replace(
        facts,
        comfy_layers={module: facts.comfy_layers[name] for name, module in comfy.items()},
        layers={
            **facts.layers,
            **{module: single[name] for name, module in layers.items()},
        },
        said=tuple((layers.get(target, target), told) for target, told in facts.said),
    )


def _found(named: Mapping[str, T], modules: Collection[str], by: str) -> dict[str, str]:
    """The module that each name means: that of this name, else the one that ends alike."""
    found = {name: name for name in named if name in modules}
    missed = [name for name in named if name not in found]
    if not missed:
        return found
    by_last: dict[str, list[tuple[str, ...]]] = {}
    for module in modules:
        parts = tuple(module.split("."))
        by_last.setdefault(parts[-1], []).append(parts)
    for name in missed:
        parts = tuple(name.removesuffix(".weight").split("."))
        alike = [module for module in by_last.get(parts[-1], ()) if _is_same(parts, module)]
        if len(alike) > 1:
            both = " and ".join(repr(".".join(module)) for module in alike[:2])
            raise ParseError(f"{by}: {name!r} may mean {both}", remedy=_REMEDY)
        if alike:
            found[name] = ".".join(alike[0])
    return found


def _is_same(said: tuple[str, ...], module: tuple[str, ...]) -> bool:
    """Whether names differ by prefixes alone: one has none, or both have the same words there."""
    n = 0
    for a, b in zip(reversed(said), reversed(module), strict=False):
        if a != b:
            break
        n += 1
    heads = said[: len(said) - n], module[: len(module) - n]
    is_numbered = any(part.isdecimal() for head in heads for part in head)
    one, other = map(set, heads)
    return n > 0 and not is_numbered and (one <= other or other <= one)


def _check(
    named: Mapping[str, object], found: Mapping[str, str], modules: Collection[str], by: str
) -> None:
    """Refuse names of no module, and two names of one."""
    missed = [name for name in named if name not in found]
    if missed:
        more = f" and {len(missed) - 1:,} more" if len(missed) > 1 else ""
        hint = did_you_mean(missed[0], modules)
        raise ParseError(
            f"{by} says how {missed[0]!r}{more} is encoded, which the model does not have{hint}",
            remedy=_REMEDY,
        )
    meant: dict[str, str] = {}
    for name, module in found.items():
        if meant.setdefault(module, name) != name:
            raise ParseError(
                f"{by} says twice how {module!r} is encoded: as {meant[module]!r} and {name!r}",
                remedy=_REMEDY,
            )
