"""Which layers ModelOpt leaves, and how its `export_hf_checkpoint` lists them.

It asks a model's modules for their classes: it knows nn.Linear and nn.Embedding, and no class that
computes otherwise than these. A file has only names, and of tied modules not even those.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from fnmatch import translate
from typing import Any

from anamnesis.base.plain_json import json_table
from anamnesis.schemes.core.layout import Layers
from anamnesis.schemes.libraries.left_plain import alike
from anamnesis.schemes.libraries.sections import model_types
from anamnesis.schemes.libraries.tied_heads import head_of

VERSION = "0.47.0"  # whose bytes and config these are
_PRODUCER = {"name": "modelopt", "version": VERSION}
_IN_GROUPS = "W4A16_NVFP4"  # whose config tells of a group of layers
_ALONE = "mxfp4"  # whose file does not say its group size
_OF_ALL = "FP8"  # whose config tells of a group of layers, too

_TABLE = {key: words.split() for key, words in json_table(__file__).items()}
# `default_disabled_quantizers`, of the names of a module's quantisers.
_LEFT = re.compile("|".join(map(translate, _TABLE["disabled"])))
# Types of models whose word embeddings are of a class of their own, for they scale or norm them.
_SCALED = frozenset(_TABLE["scaled"])
_WORDS = re.compile(r"(^|\.)(embed_tokens(_per_layer)?|shared)$")
# Positions are so, too, but those of encoders of sound.
_POSITIONS = re.compile(r"(^|\.)(embed_positions|(en|de)coder\.position_embeddings)$")
_OF_SOUND = frozenset(_TABLE["of sound"])


def modelopt_refusal(name: str) -> str | None:
    """Return why ModelOpt leaves a linear layer's weight by its name; None if it does not."""
    module = alike(name.removesuffix(".weight"))
    return "disabled by ModelOpt" if _LEFT.match(f"{module}.weight_quantizer") else None


def config_of(algorithm: str, group: int, layers: Layers) -> dict[str, Any]:
    """Return the section of config.json, as `convert_hf_quant_config_format` gives it."""
    # But that of `FP8` says nothing of activations: ModelOpt has static scales for them.
    is_of_all = algorithm == _OF_ALL
    weights: dict[str, Any] = {"dynamic": False, "num_bits": 8 if is_of_all else 4, "type": "float"}
    weights |= {"group_size": group} if group else {}
    groups = {"group_0": {"weights": weights, "targets": ["Linear"]}}
    return {
        **({"config_groups": groups} if is_of_all or algorithm == _IN_GROUPS else {}),
        "ignore": excluded(layers),
        "quant_algo": algorithm,
        "producer": dict(_PRODUCER),
        "quant_method": "modelopt",
    }


def file_of(algorithm: str, group: int, layers: Layers) -> dict[str, Any]:
    """Return hf_quant_config.json, as `process_layer_quant_config` gives it."""
    quantization = {
        "quant_algo": algorithm,
        "kv_cache_quant_algo": None,
        **({"group_size": group} if group and algorithm != _ALONE else {}),
        "exclude_modules": excluded(layers),
    }
    return {"producer": dict(_PRODUCER), "quantization": quantization}


def excluded(layers: Layers) -> list[str]:
    """Return what ModelOpt lists as left: modules, and patterns of whole branches."""
    # Tied modules are among them, which are in no file: vLLM makes a quantised layer of a head that
    # is not listed.
    types = model_types(layers.config)
    known = [name for name in layers.plain if not _is_of_own_class(name, types)]
    plain = dict.fromkeys([*known, *_tied(known, layers)])
    return sorted(set(_summary(plain, layers.quantised)))


def _is_of_own_class(name: str, types: frozenset[str]) -> bool:
    """Return whether a module of types of models is an embedding that ModelOpt does not know."""
    if name.endswith("visual_embeddings_table"):
        return True
    if _POSITIONS.search(name):
        return "decoder." in name or not types & _OF_SOUND
    return _WORDS.search(name) is not None and not types.isdisjoint(_SCALED)


def _tied(plain: Iterable[str], layers: Layers) -> Iterator[str]:
    """Yield an output head, and the embeddings of encoders and decoders that share theirs."""
    present = {*layers.plain, *layers.quantised}
    may_be_tied = layers.config.get("tie_word_embeddings") is not False
    head = head_of(layers.config) if may_be_tied else None
    if head is not None and not any(f"{name}.".startswith(f"{head}.") for name in present):
        yield head
    for name in plain:
        outer, _, last = name.rpartition("shared")
        for half in ("encoder.", "decoder.") if name == f"{outer}shared" and not last else ():
            if any(other.startswith(outer + half) for other in present):
                yield f"{outer}{half}embed_tokens"


def _summary(plain: Iterable[str], quantised: Iterable[str]) -> Iterator[str]:
    """Yield the shortest names that fit all plain modules and begin no quantised one."""
    # `_prefix_wildcard_summarize_exclude_modules`: `a.b*` for all that begins with `a.b`; else
    # `a.b.*`, where `a.b` is none either; else the module itself.
    names = sorted(quantised)

    def begins_one(text: str) -> bool:
        at = bisect_left(names, text)
        return at < len(names) and names[at].startswith(text)

    for name in plain:
        for branch in (name[:at] for at, char in enumerate(name) if char == "."):
            if not begins_one(branch):
                yield f"{branch}*"
                break
            if not begins_one(f"{branch}.") and branch not in names:
                yield f"{branch}.*"
                break
        else:
            yield name
