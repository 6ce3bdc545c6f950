"""The JSON files beside the weights, as they read once nothing is quantised."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from anamnesis.base.dtypes import DType
from anamnesis.base.errors import UnsupportedError
from anamnesis.schemes.libraries.sections import QUANT_CONFIG_KEYS

# transformers reads `dtype` since 4.56, `torch_dtype` before.
_CLASS_KEY = "_class_name"  # in the configs of diffusers, which takes no key that it does not know

# Where a quantisation lists the modules that it leaves, by `quant_method`: as compressed-tensors
# and transformers read them.
_LEFT_KEYS = {
    "compressed-tensors": "ignore",
    "bitsandbytes": "llm_int8_skip_modules",
    "hqq": "skip_modules",
    **dict.fromkeys(
        ("fp8", "fbgemm_fp8", "mxfp4", "awq", "bitnet", "quanto", "torchao"),
        "modules_to_not_convert",
    ),
}

_SURROGATE = re.compile("[\ud800-\udfff]")  # half a pair: JSON may have it, UTF-8 may not


def edited_config(
    config: dict[str, Any],
    dtype: DType | None,
    *,
    dense: bool,
    quantization: dict[str, Any] | None = None,
    decoded: Sequence[str] = (),
) -> tuple[bytes, dict[str, Any]]:
    """Return config.json with `dtype`, and without its quantisation, nested sections included."""
    # And what that changes at the top: the new values by their keys, None for what is taken out. If
    # the model is not all `dense`, the quantisation stays, and says of the modules that are
    # `decoded` that they are not quantised; if there is another now, its sections are told, by
    # their keys.
    told = _without_quantization(config) if dense else copy.deepcopy(config)
    if not dense and decoded:
        sections = list(_quantizations(told))
        is_one = len(sections) == 1 and not sections[0].get("sparsity_config")
        key = _LEFT_KEYS.get(str(sections[0].get("quant_method")), "") if is_one else ""
        listed = sections[0].get(key) or [] if key else []
        if sections and not (key and type(listed) is list):
            method = sections[0].get("quant_method") or "of this kind"
            raise UnsupportedError(
                f"a config.json with a quantisation {method} cannot say that {decoded[0]!r} is not"
                " quantised, while others are; keep all weights as they are stored, or none, or"
                " write one file"
            )
        for section in sections:
            section[key] = [*listed, *(module for module in decoded if module not in listed)]
    if quantization:
        told |= quantization
    if dtype is not None:
        _set_dtype(told, dtype, everywhere=_CLASS_KEY not in told)
    edits = {
        key: told.get(key)
        for key in {**config, **told}
        if key not in config or key not in told or config[key] != told[key]
    }
    return _dump(told), edits


def describes_quantization(config: dict[str, Any]) -> bool:
    """Return whether a config has a section that `edited_config` takes out of a dense model's."""
    return bool(_without_quantization(config) != config)


def edited_params(params: dict[str, Any], quantization: dict[str, Any]) -> bytes:
    """Return Mistral's params.json with other sections instead of its quantisation."""
    return _dump({**_without_quantization(params), **quantization})


def shard_index(weight_map: dict[str, str], total_size: int) -> bytes:
    """Return model.safetensors.index.json; `total_size` counts the bytes of all tensors."""
    return _dump({"metadata": {"total_size": total_size}, "weight_map": weight_map})


def _dump(value: dict[str, Any]) -> bytes:
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    return _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", text).encode()


def _without_quantization(node: Any) -> Any:
    if isinstance(node, dict):
        return {
            key: _without_quantization(value)
            for key, value in node.items()
            if not (key in QUANT_CONFIG_KEYS and isinstance(value, (dict, type(None))))
        }
    if isinstance(node, list):
        return [_without_quantization(item) for item in node]
    return node


def _quantizations(node: Any) -> Iterator[dict[str, Any]]:
    """Yield all sections that say how a model is quantised."""
    for child in node if isinstance(node, list) else node.values():
        if isinstance(child, (dict, list)):
            yield from _quantizations(child)
    if isinstance(node, dict):
        yield from (node[key] for key in QUANT_CONFIG_KEYS if isinstance(node.get(key), dict))


def _set_dtype(node: dict[str, Any], dtype: DType, *, everywhere: bool) -> None:
    """Set the dtype at the top, and in sections (`text_config`, …) that have one."""
    for key in ("dtype", "torch_dtype"):
        if everywhere or isinstance(node.get(key), str):
            node[key] = dtype.torch_name
    for key, value in node.items():
        if isinstance(value, dict) and key not in QUANT_CONFIG_KEYS:
            _set_dtype(value, dtype, everywhere=False)
