"""The facts: what a model's config and files say of its encodings.

They only settle what names, dtypes and shapes leave open.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from anamnesis.schemes.libraries.comfy_metadata import ComfyLayer, read_layers
from anamnesis.schemes.libraries.sections import (
    QUANT_CONFIG_KEYS,
    pair,
    quant_sections,
    typed_sections,
)
from anamnesis.schemes.libraries.torchao_metadata import Described, described_in

if TYPE_CHECKING:
    from anamnesis.schemes.libraries.config import Expectation

T = TypeVar("T")

SETTINGS_KEY = QUANT_CONFIG_KEYS[0]  # of a lone file's metadata, where no config lies beside
GPTQ_METADATA_PREFIX = "gptq_"  # AutoGPTQ repeats its config in safetensors' metadata

_LONGEST_SETTINGS = 1 << 18
_NUMBER = re.compile(r"-?[0-9]{1,9}")

# What says, in a key or as the name of a method, that weights or activations are multiplied with
# something that no weight here accounts for.
_TRANSFORM = re.compile(
    "hadamard|online_had|rotation|rotate|quarot|spinquant|transform_config|transform_block_size",
    re.IGNORECASE,
)
_ADAPTERS = ("adapter", "lora")  # low-rank corrections, in files of their own
_NAMING_KEYS = ("name", "algo", "algorithm")  # of entries whose values name a method
_NOTHING = (None, False, 0, "", "none", "None")

# Entries that are more specific than the method, the most specific first.
_LAYOUT_KEYS = ("quant_algo", "packing_format", "format", "checkpoint_format", "mode", "version")
# Keys of sections that name no method: of AutoAWQ, AutoGPTQ and early versions of MLX.
_UNNAMED = {"w_bit": "awq", "desc_act": "gptq", "bits": "mlx"}
_BLOCK_SIZE = "weight_block_size"
_BLOCK_ALGOS = ("fp8_pb_wo", "fp8_pb_real")  # ModelOpt's, always in blocks of 128x128
# What the sizes of a model's layers are called.
_HIDDEN = ("hidden_size", "d_model", "n_embd", "dim")
_SIZE_ENDINGS = ("_size", "_dim", "_rank", "d_ff", "n_inner")
_HEADS = ("num_attention_heads", "num_heads", "n_head")
_HEAD_SIZES = ("head_dim", "d_kv", "attention_head_dim")
_AQLM_KEYS = ("num_codebooks", "nbits_per_codebook", "out_group_size", "in_group_size")
_GROUP_SIZES = ("group_size", "q_group_size")
_KV_CACHE_KEYS = ("kv_cache_scheme", "kv_cache_quant_algo", "kv_cache_quant_config")


VptqLayer = tuple[int, int, int]  # the length of vectors, rows and columns, which no shape tells


@dataclass(frozen=True, slots=True)
class QuantFacts:
    """The few facts that schemes ask for."""

    method: str | None = None
    blocks: frozenset[tuple[int, int]] = frozenset()
    comfy_layers: Mapping[str, ComfyLayer] = field(default_factory=dict)
    layout: str | None = None
    bits: frozenset[int] = frozenset()
    group_sizes: frozenset[int] = frozenset()
    declared: str | None = None
    transform: str | None = None
    kv_cache: bool = False
    per_head: bool = False
    layouts: frozenset[str] = frozenset()
    model_types: frozenset[tuple[str, str]] = frozenset()
    conv1d: bool | None = None
    folds: bool = False
    layers: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    version: str | None = None
    code_dtypes: frozenset[str] = frozenset()
    pack_methods: frozenset[str] = frozenset()
    sizes: frozenset[int] = frozenset()
    hidden_sizes: frozenset[int] = frozenset()
    vptq_layers: Mapping[str, VptqLayer] = field(default_factory=dict)
    described: Mapping[str, Described] = field(default_factory=dict)
    trellis_codebook: str | None = None
    codebooks: tuple[int, ...] | None = None
    expected: tuple[Expectation, ...] = ()
    left_alone: tuple[str, ...] = ()
    tiles: bool | None = None
    missed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    unmatched: tuple[Expectation, ...] = ()
    is_partly_undetermined: bool = False
    formats: Mapping[str, str] = field(default_factory=dict)

    @property
    def types(self) -> frozenset[str]:
        return frozenset(kind for _, kind in self.model_types)

    def given(
        self,
        block: tuple[int, int] | None,
        conv1d: bool | None,
        tiles: bool | None = None,
        *,
        folds: bool,
    ) -> QuantFacts:
        """Return them with what the caller says, whatever the config does."""
        tiles = self.tiles if tiles is None else tiles
        given = replace(self, conv1d=conv1d, tiles=tiles, folds=folds)
        if block is None:
            return given
        expected = tuple(row for row in self.expected if row[1].block is None)
        blocks = frozenset({block})
        return replace(given, blocks=blocks, expected=expected)


def read_facts(
    config: Mapping[str, Any],
    metadata: Mapping[str, str],
    described: Mapping[str, Mapping[str, Any]] | None = None,
) -> QuantFacts:
    """Gather the facts from a parsed config.json, nested sections included, and from metadata."""
    # What pickles say of single weights is given as `described`.
    if not config and not metadata:
        return QuantFacts()
    from anamnesis.schemes.libraries.config import expected_in, left_alone, mlx_layers

    sections = [*quant_sections(config), _gptq_section(metadata), _settings(metadata)]
    groups = [group for section in sections for group in _dicts(section, depth=4)]
    parts = [*_dicts(config, depth=2)]
    said = [tuple(expected_in(section)) for section in sections if _quantises(section)]
    layouts = [word for word in map(_layout, sections) if word]
    comfy_layers = read_layers(metadata)
    return QuantFacts(
        method=_first(map(_method, sections)),
        blocks=frozenset(block for group in groups for block in _blocks(group)),
        comfy_layers=comfy_layers,
        layout=_first(layouts),
        bits=frozenset(n for group in groups for n in _bits(group)),
        group_sizes=frozenset(n for group in groups for n in _ints(group, _GROUP_SIZES)),
        declared=_first(map(_declared, sections)) or ("ComfyUI" if comfy_layers else None),
        transform=_first(name for section in sections for name in _transforms(section)),
        kv_cache=any(_says(section.get(key)) for section in sections for key in _KV_CACHE_KEYS),
        per_head=any(group.get("strategy") == "attn_head" for group in groups),
        layouts=frozenset(layouts),
        model_types=frozenset(typed_sections(config)),
        layers=_by_name(map(mlx_layers, sections)),
        version=_first(str(section["version"]) for section in sections if section.get("version")),
        code_dtypes=frozenset(d for group in groups for d in _words(group.get("weight"), "dtype")),
        pack_methods=frozenset(way for group in groups for way in _words(group, "pack_method")),
        sizes=frozenset(n for part in parts for n in _sizes(part)),
        hidden_sizes=frozenset(n for part in parts for n in _ints(part, _HIDDEN)),
        vptq_layers=_by_name(map(_vptq_layers, sections)),
        described=described_in(metadata, described or {}),
        trellis_codebook=_first(n for s in sections if isinstance(n := s.get("codebook"), str)),
        codebooks=_first(map(_codebooks, sections)),
        expected=tuple(row for section in sections for row in expected_in(section)),
        is_partly_undetermined=not all(said),
        left_alone=tuple(target for section in sections for target in left_alone(section)),
    )


def _first(found: Iterable[T | None]) -> T | None:
    return next(filter(None, found), None)


def _by_name(layers: Iterable[Mapping[str, T]]) -> dict[str, T]:
    """Return what sections say of layers: of each what the first does."""
    return {name: said for some in reversed([*layers]) for name, said in some.items()}


def _blocks(group: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    for key in (_BLOCK_SIZE, "block_structure"):
        block = pair(group.get(key))
        if block:
            yield block
    if str(group.get("quant_algo")).lower() in _BLOCK_ALGOS:
        yield 128, 128


def _bits(group: Mapping[str, Any]) -> set[int]:
    """Return the bits of weights, where a section may have bits of activations as well."""
    weights = group.get("weights")
    of_weights = _ints(weights, ("num_bits",)) if isinstance(weights, dict) else set()
    return _ints(group, ("bits", "w_bit")) | of_weights


def _vptq_layers(section: Mapping[str, Any]) -> dict[str, VptqLayer]:
    """Return the entries of `config_for_layers` that say it all in positive numbers."""
    listed = section.get("config_for_layers")
    found = {}
    for name, layer in listed.items() if isinstance(listed, dict) else ():
        lengths = layer.get("vector_lens") if isinstance(layer, dict) else None
        if isinstance(lengths, list) and len(lengths) == 2:
            sizes = (lengths[1], layer.get("out_features"), layer.get("in_features"))
            if all(type(n) is int and n > 0 for n in sizes):
                found[name] = sizes
    return found


def _codebooks(section: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return the shape of AQLM's codebooks."""
    numbers = [n for n in map(section.get, _AQLM_KEYS) if type(n) is int and 0 < n < 1000]
    if len(numbers) < len(_AQLM_KEYS):
        return None
    n_books, bits, tall, wide = numbers
    return n_books, 1 << bits, tall, wide


def _method(section: Mapping[str, Any]) -> str | None:
    name = section.get("quant_method") or _nested(section, "producer", "name")
    return name if isinstance(name, str) else None


def _declared(section: Mapping[str, Any]) -> str | None:
    """Return the encoding that a section says the weights are in, in words."""
    if not _quantises(section):
        return None
    words = [section.get(key) for key in _LAYOUT_KEYS]
    layouts = [_nested(section, "sparsity_config", "format"), *words]
    names = [name for name in layouts if isinstance(name, str) and name not in ("", "dense")]
    layout = [name for name in names if not name[0].isdecimal()]  # which versions of tools are
    unnamed = next((name for key, name in _UNNAMED.items() if key in section), "a quantisation")
    return ", ".join([_method(section) or unnamed, *layout[:1]])


def _quantises(section: Mapping[str, Any]) -> bool:
    """Return whether a section is about weights, not of a cache or of nothing at all."""
    if not any(_says(value) for key, value in section.items() if key != "producer"):
        return False
    if "quant_algo" in section:
        layers = section.get("quantized_layers")
        return _says(layers) or section["quant_algo"] not in (None, "", "NO_QUANT")
    if "config_groups" in section or "sparsity_config" in section:
        sparse = _nested(section, "sparsity_config", "format")
        groups = section.get("config_groups")
        listed = groups.values() if isinstance(groups, dict) else ()
        weights = [group.get("weights") for group in listed if isinstance(group, dict)]
        return any(map(_says, weights)) or sparse not in (None, "dense")
    loads = [section[key] for key in ("load_in_4bit", "load_in_8bit") if key in section]
    return any(loads) or not loads


def _transforms(node: Any) -> Iterator[str]:
    """Yield the entries of a section, a dict or a list, that name a transform."""
    if isinstance(node, list):
        for item in node:
            if isinstance(item, (dict, list)):
                yield from _transforms(item)
        return
    for key, value in node.items():
        # Others are names of layers, and settings of PARO's search.
        is_own = "." not in key and not key.startswith("opt_")
        if is_own and (key in _ADAPTERS or _TRANSFORM.search(key)):
            if _says(value):
                yield key
        elif isinstance(value, (dict, list)):
            yield from _transforms(value)
        elif key in _NAMING_KEYS and isinstance(value, str) and _TRANSFORM.search(value):
            yield value


def _says(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_says(item) for item in value.values())
    return value != [] and value not in _NOTHING


def _layout(section: Mapping[str, Any]) -> str | None:
    """Return how packed integers lie, in GPTQModel's words."""
    if section.get("is_marlin_format") is True:
        return "marlin"
    if "auto" in str(section.get("quant_method")) and "round" in str(section.get("quant_method")):
        # `auto_round:auto_gptq` and `auto_round:gptq:exllamav2` take 1 off zero points, as GPTQ's
        # first format does; `auto_round:gptqmodel`, `auto_round` and `auto_round:exllamav2` do not.
        packing = section.get("packing_format") or section.get("backend")
        if not isinstance(packing, str) or packing == "auto":
            return "gptq"
        if "awq" in packing:
            return "gemm"
        return "gptq" if "gptq" in packing.replace("gptqmodel", "") else "gptq_v2"
    for key in ("checkpoint_format", "format", "linear_class", "version"):
        word = section.get(key)
        if isinstance(word, str) and word:
            return word.lower()
    return None


def _gptq_section(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return the config that a file's metadata repeat, numbers as numbers."""
    prefix = GPTQ_METADATA_PREFIX
    texts = {
        key.removeprefix(prefix): metadata[key]
        for key in metadata
        if key.startswith(prefix) and isinstance(metadata[key], str)
    }
    return {key: int(v) if _NUMBER.fullmatch(v) else v for key, v in texts.items()}


def _settings(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings that a file names itself: plain values, and settings of single layers."""
    text = metadata.get(SETTINGS_KEY)
    if not isinstance(text, str) or len(text) > _LONGEST_SETTINGS:
        return {}
    try:
        settings = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(settings, dict):
        return {}
    from anamnesis.schemes.libraries.config import mlx_layers

    nested = {key for key, value in settings.items() if isinstance(value, (dict, list))}
    return settings if nested <= {*mlx_layers(settings), _BLOCK_SIZE} else {}


def _ints(group: Mapping[str, Any], keys: tuple[str, ...]) -> set[int]:
    return {value for value in map(group.get, keys) if type(value) is int}


def _sizes(config: Mapping[str, Any]) -> Iterator[int]:
    """Yield the sizes that a model's config names, and those that follow from its heads."""
    for key, n in config.items():
        if type(n) is int and n > 0 and (key in _HIDDEN or key.endswith(_SIZE_ENDINGS)):
            yield n
    hidden, heads = (next(iter(_ints(config, keys)), 0) for keys in (_HIDDEN, _HEADS))
    wide = next(iter(_ints(config, _HEAD_SIZES)), hidden // heads if heads > 0 else 0)
    for n in _ints(config, (*_HEADS, "num_key_value_heads")):
        if n * wide > 0:
            yield n * wide


def _words(group: Any, key: str) -> set[str]:
    """Return what a section, or each of a list of them, says under a key in a word."""
    groups = group if isinstance(group, list) else [group]
    return {g[key] for g in groups if isinstance(g, dict) and isinstance(g.get(key), str)}


def _dicts(node: Mapping[str, Any], depth: int) -> Iterator[Mapping[str, Any]]:
    yield node
    if depth:
        for value in node.values():
            if isinstance(value, dict):
                yield from _dicts(value, depth - 1)


def _nested(section: Mapping[str, Any], *keys: str) -> Any:
    node: Any = section
    for key in keys:
        node = node.get(key) if isinstance(node, dict) else None
    return node
