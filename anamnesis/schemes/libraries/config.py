"""What a config says of how each weight is encoded.

A row of what they say is a target, which is a module, a pattern or nothing for all others, and
what is `Expected` of it. Nothing is expected of a module that is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from anamnesis.schemes.core.settings import AskedPart, Expected
from anamnesis.schemes.libraries.sections import pair
from anamnesis.schemes.libraries.targets import by_regex

Expectation: TypeAlias = "tuple[str, Expected]"

_LEFT_ALONE = ("ignore", "exclude_modules", "exclude", "modules_to_not_convert")
_ROW, _ONE = (1, 0), (0, 0)

# --- compressed-tensors -----------------------------------------------------------------------


def _config_groups(section: Mapping[str, Any]) -> Iterator[Expectation]:
    for name, group in _dicts(section.get("config_groups")):
        weights = group.get("weights")
        if not isinstance(weights, dict):
            continue
        kind, parts = _word(weights.get("type")), []
        if kind == "int" and weights.get("symmetric") is False:
            parts.append(AskedPart("weight_zero_point", "symmetric: false"))
        if weights.get("actorder") in ("group", "dynamic"):
            parts.append(AskedPart("weight_g_idx", f"actorder: {weights['actorder']}"))
        by = f"{name} of config_groups"
        layout = group.get("format") or section.get("format")
        given = Expected(
            *(by, kind, _size(weights.get("num_bits")), _block_of(weights), tuple(parts)),
            is_symmetric=weights.get("symmetric") is True,
            in_bytes=layout != "pack-quantized",
            format=_DATA["nvfp4_v2"][2] if layout == _E5M3 else "",
        )
        targets = group.get("targets")
        for target in targets if isinstance(targets, list) and targets else [""]:
            yield _word(target), given


def _block_of(weights: Mapping[str, Any]) -> tuple[int, int] | None:
    strategy, size = weights.get("strategy"), weights.get("group_size")
    if strategy == "block":
        return pair(weights.get("block_structure"))
    if strategy in ("group", "tensor_group") or (strategy is None and type(size) is int):
        return _groups_of(size)
    return {"channel": _ROW, "tensor": _ONE}.get(_word(strategy))


# --- ModelOpt ---------------------------------------------------------------------------------

# The kind, the bits, and the block; of groups the usual length.
_ALGOS: dict[str, tuple[str, int, tuple[int, int]]] = {
    "FP8": ("float", 8, _ONE),
    "FP8_PER_CHANNEL_PER_TOKEN": ("float", 8, _ROW),
    "FP8_PB_WO": ("float", 8, (128, 128)),
    "FP8_PB_REAL": ("float", 8, (128, 128)),
    "NVFP4": ("float", 4, (1, 16)),
    "NVFP4_AWQ": ("float", 4, (1, 16)),
    "NVFP4_SVD": ("float", 4, (1, 16)),
    "W4A16_NVFP4": ("float", 4, (1, 16)),
    "W4A8_NVFP4_FP8": ("float", 4, (1, 32)),
    "MXFP4": ("float", 4, (1, 32)),
    "W4A8_MXFP4_FP8": ("float", 4, (1, 32)),
    "MXFP8": ("float", 8, (1, 32)),
    "W4A16_AWQ": ("int", 4, (1, 128)),
    "W4A8_AWQ": ("int", 4, (1, 128)),
    "W8A16": ("int", 8, _ROW),
    "W8A8_SQ_PER_CHANNEL": ("int", 8, _ROW),
}
_UNREAD_ALGOS = {"NVFP4_SVD": "NVFP4 with a low-rank part (SVDQuant of ModelOpt)"}


def _algorithms(section: Mapping[str, Any]) -> Iterator[Expectation]:
    layers = dict(_dicts(section.get("quantized_layers")))
    for target, layer in [*layers.items(), ("", section)] if not layers else layers.items():
        algo = _word(layer.get("quant_algo")).upper()
        row, unread = _ALGOS.get(algo), _UNREAD_ALGOS.get(algo, "")
        if row is not None:
            kind, bits, block = row
            size = _size(layer.get("group_size"))
            is_grouped = size and block[0] == 1 and block[1]
            by = f"quant_algo {layer['quant_algo']}"
            block = (1, size) if is_grouped else block
            yield target, Expected(by, kind, bits, block, unread=unread)


# --- GPTQ, AWQ, AutoRound ---------------------------------------------------------------------

_PACKERS = ("gptq", "awq", "auto-round", "intel/auto-round", "gptqmodel")
_UNNAMED = ("w_bit", "desc_act", "zero_point")  # keys of those who do not say the method
_MINUS = "-:"  # before a pattern of GPTQModel's: what is left alone
# AutoRound's types of data, by how they begin: the kind, bits and format of its own numbers, and
# what they are called.
_DATA = {
    "nvfp4_v2": ("float", 4, "autoround-e5m3", "NVFP4 with scales of E5M3"),
    "mx_int": ("int", 4, "autoround-mxint4", "MXINT"),
    "mx_uint": ("int", 0, "", "MXUINT"),
    "mx_fp": ("float", 0, "", ""),
    "nv_fp": ("float", 0, "", ""),
}
_E5M3 = "nvfp4-e5m3-pack-quantized"  # which it calls a format of compressed-tensors


def _packed(section: Mapping[str, Any]) -> Iterator[Expectation]:
    given = _packing(section, section, "the config")
    if given is None:
        return
    yield "", given
    for target, more in _dicts(section.get("extra_config")):
        other = _packing({**section, **more}, section, f"extra_config of {target}")
        if other is not None:
            is_regex = any(letter in target for letter in "*()[]\\^$|+?")
            yield (by_regex(target) if is_regex else target), other
    for target, more in _dicts(section.get("dynamic")):
        other = _packing({**section, **more}, section, f"dynamic of {target}")
        if other is not None and not target.startswith(_MINUS):
            yield by_regex(target.removeprefix("+:")), other


def _packing(settings: Mapping[str, Any], section: Mapping[str, Any], by: str) -> Expected | None:
    bits = _size(settings.get("bits")) or _size(settings.get("w_bit"))
    size = settings.get("group_size", settings.get("q_group_size"))
    data = _word(settings.get("data_type"))
    if not bits or bits > 8 or data.startswith("fp"):
        return None
    rows = (row for key, row in _DATA.items() if data.startswith(key))
    kind, own_bits, format, called = next(rows, ("int", 0, "", ""))
    is_own = bits == own_bits
    named = f"{called} (AutoRound)" if called and not is_own else ""
    is_listed = settings.get("desc_act") is True and section.get("is_marlin_format") is not True
    parts = (AskedPart("g_idx", "desc_act: true"),) if is_listed else ()
    is_symmetric = settings.get("sym") is True
    block = _groups_of(size)
    return Expected(
        *(by, kind, bits, block, parts),
        unread=named,
        is_symmetric=is_symmetric,
        format=format if is_own else "",
    )


# --- MLX --------------------------------------------------------------------------------------


_MLX_GROUPS = {"affine": 64, "mxfp4": 32, "nvfp4": 16, "mxfp8": 32}  # by default


def _mlx(section: Mapping[str, Any]) -> Iterator[Expectation]:
    for target, (bits, size) in mlx_layers(section).items():
        layer = section[target] if target else section
        mode = _word(layer.get("mode", "affine"))
        kind = "int" if mode == "affine" else "float"
        unread = "" if mode in _MLX_GROUPS else f"{mode} (MLX)"
        second = layer.get("global_scale") is True
        parts = (AskedPart("global_scale", "global_scale: true"),) if second else ()
        by = f"quantization of {target}" if target else "quantization"
        block = (1, size) if "group_size" in layer else None  # for others than MLX may say it
        by = f"{by} in the config"
        yield target, Expected(by, kind, bits, block, parts, is_whole=True, unread=unread)


def mlx_layers(section: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Return the bits and the group size that MLX's config says of layers, and of all under ""."""
    # A layer that says no mode is affine whatever the others are, and one that says no group size
    # has the usual one.
    found = {}
    for target, layer in (("", section), *_dicts(section)):
        bits, size = _size(layer.get("bits")), _size(layer.get("group_size"))
        if target and "group_size" not in layer:
            size = _MLX_GROUPS.get(_word(layer.get("mode", "affine")), 0)
        if bits and size:
            found[target] = bits, size
    return found


# --- Quark ------------------------------------------------------------------------------------

_SCHEMES = {"per_tensor": _ONE, "per_channel": _ROW}


def _quark(section: Mapping[str, Any]) -> Iterator[Expectation]:
    layers = [*_dicts(section.get("layer_quant_config"))]
    whole = section.get("global_quant_config")
    layers += [("", whole)] if isinstance(whole, dict) else []
    for target, config in layers:
        weight = config.get("weight")
        if not isinstance(weight, dict):
            continue
        dtype, scheme = _word(weight.get("dtype")), _word(weight.get("qscheme"))
        digits = next((d for d in dtype if d.isdecimal()), "0")
        kind = "int" if "int" in dtype else "float" if dtype.startswith("fp") else ""
        is_grouped = scheme == "per_group"
        block = _groups_of(weight.get("group_size")) if is_grouped else _SCHEMES.get(scheme)
        asked = (AskedPart("weight_zero_point", "symmetric: false"),)
        parts = asked if weight.get("symmetric") is False and kind == "int" else ()
        by = f"layer_quant_config of {target}" if target else "global_quant_config"
        yield target, Expected(by, kind, int(digits) if kind else 0, block, parts)


# --- quanto -----------------------------------------------------------------------------------

_QUANTO = {"int8": ("int", 8), "int4": ("int", 4), "int2": ("int", 2), "float8": ("float", 8)}


def _quanto(section: Mapping[str, Any]) -> Iterator[Expectation]:
    row = _QUANTO.get(_word(section.get("weights")))
    if row is not None:
        yield "", Expected(f"weights: {section['weights']} in the config", *row)


# --- Gemma ------------------------------------------------------------------------------------


def _gemma(section: Mapping[str, Any]) -> Iterator[Expectation]:
    bits = _size(section.get("num_bits")) or 4
    yield "", Expected("num_bits of the config", "int", bits)
    for pattern, module in _dicts(section.get("module_quant_configs")):
        by = f"module_quant_configs of {pattern}"
        # `re.search` takes it, which finds it in the middle of a name as well.
        target = by_regex(pattern if pattern[:1] in ("^", "") else f".*{pattern}")
        yield target, Expected(by, "int", _size(module.get("num_bits")) or bits)


# --- VPTQ -------------------------------------------------------------------------------------


def _vptq(section: Mapping[str, Any]) -> Iterator[Expectation]:
    for target, layer in _dicts(section.get("config_for_layers")):
        parts = []
        if layer.get("enable_norm") is True:
            parts += [
                AskedPart(part, "enable_norm: true") for part in ("weight_scale", "weight_bias")
            ]
        if layer.get("enable_perm") is True:
            parts.append(AskedPart("perm", "enable_perm: true"))
        corrections = layer.get("num_res_centroids")
        if isinstance(corrections, list) and any(map(_size, corrections)):
            parts.append(AskedPart("res_centroids.weight", f"num_res_centroids: {corrections}"))
        yield target, Expected(f"config_for_layers of {target}", parts=tuple(parts))


# --- all of them ------------------------------------------------------------------------------

_BY_KEY = {
    "quant_algo": _algorithms,
    "config_groups": _config_groups,
    "global_quant_config": _quark,
}
_BY_METHOD = {"quanto": _quanto, "gemma": _gemma, **dict.fromkeys(_PACKERS, _packed)}


def expected_in(section: Mapping[str, Any]) -> Iterator[Expectation]:
    """Yield what a section about quantisation says of weights."""
    method = _word(section.get("quant_method")).lower()
    by_key = (read for key, read in _BY_KEY.items() if key in section)
    read = next(by_key, None) or _BY_METHOD.get(method)
    if read is None and not method:
        read = _packed if any(key in section for key in _UNNAMED) else _mlx
    if read is not None:
        yield from read(section)
    yield from _vptq(section)
    block = pair(section.get("weight_block_size"))
    if block is not None:
        by = f"weight_block_size {list(block)}"
        # Scales of blocks are called otherwise: one for a row or a tensor is of a mixed model.
        yield "", Expected(by, "float", 8, block, of_kind_only=True, not_of=".weight_scale")


def left_alone(section: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names and patterns of modules that a section speaks of as not quantised."""
    for key in _LEFT_ALONE:
        listed = section.get(key)
        for target in listed if isinstance(listed, list) else ():
            if isinstance(target, str):
                yield target
    yield from (
        by_regex(target.removeprefix(_MINUS))
        for target, _ in _dicts(section.get("dynamic"))
        if target.startswith(_MINUS)
    )


def _dicts(node: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for key, value in node.items() if isinstance(node, dict) else ():
        if isinstance(value, dict):
            yield key, value


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _size(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0


def _groups_of(size: Any) -> tuple[int, int] | None:
    """Return a group as a block: of -1 columns, and of none, all of a row."""
    if type(size) is not int:
        return None
    return (1, size) if size > 0 else _ROW
