"""Where a config.json speaks of quantisation, of parts, and of their types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

# Where publishers put it: transformers, old compressed-tensors; MLX and ModelOpt. The last is
# for a separate file, as AutoGPTQ and AutoAWQ wrote.
QUANT_FILE_KEY = "quantize_config"
QUANT_CONFIG_KEYS = (
    *("quantization_config", "compression_config", "quantization"),
    QUANT_FILE_KEY,
)


def quant_sections(node: Mapping[str, Any] | list[Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the sections about quantisation wherever they are: an output keeps none of them."""
    if isinstance(node, list):
        children: Iterable[Any] = node
    else:
        children = node.values()
        for key in QUANT_CONFIG_KEYS:
            section = node.get(key)
            if isinstance(section, dict):
                # hf_quant_config.json has the producer beside the section.
                yield {**section, "producer": node["producer"]} if "producer" in node else section
    for child in children:
        if isinstance(child, (dict, list)):
            yield from quant_sections(child)


def typed_sections(
    config: Mapping[str, Any], depth: int = 2, section: str = ""
) -> Iterator[tuple[str, str]]:
    """Yield each `model_type`, with the name of the section that has it, empty at the top."""
    kind = config.get("model_type")
    if isinstance(kind, str):
        yield section, kind
    if depth:
        for key, value in config.items():
            if isinstance(value, dict):
                yield from typed_sections(value, depth - 1, key)


def model_types(config: Mapping[str, Any]) -> frozenset[str]:
    """Return the types that config.json says the model and its sections are of."""
    return frozenset(kind for _, kind in typed_sections(config))


def has_parts(config: Mapping[str, Any]) -> bool:
    """Return whether a config.json has sections for parts of a model, as `vision_config`."""
    return any(
        isinstance(value, dict) and key.endswith("_config") and key not in QUANT_CONFIG_KEYS
        for key, value in config.items()
    )


def pair(value: Any) -> tuple[int, int] | None:
    """Read `[128, 128]` or `"128x128"`."""
    if isinstance(value, str):
        value = [int(n) if n.isdecimal() and len(n) < 10 else 0 for n in value.split("x")]
    if isinstance(value, list) and len(value) == 2 and all(type(n) is int and n > 0 for n in value):
        return value[0], value[1]
    return None
