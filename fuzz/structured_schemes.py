"""Checkpoints of quantised weights built from a fuzzer's bytes, mostly as they should be.

A family is a function that returns the stored tensors of one weight, and tells what the config and
the file's metadata say of it. New families go into the FAMILIES of the module that fits.
"""

from __future__ import annotations

import json
from typing import Any

import structured_codebooks
import structured_floats
import structured_integers
import structured_torchao
import structured_trellis
import structured_words
from structured import BITS, Choices
from structured_parts import Expected, Family, Tensors, bytes_of
from structured_torchao import torchao_file

from anamnesis._core import BNB_CODEBOOKS

__all__ = ["FAMILIES", "Model", "checkpoint", "checkpoint_of"]

ROWS = (32, 0, 1, 2, 3, 8, 33)
COLS = (64, 0, 1, 2, 7, 32, 65, 128)
SIZES = (*range(9), 31, 32, 64, 100, 256, 4096, 2**31, 2**40, 2**62, 2**63, 2**64, 10**30)
CONFIGS: tuple[dict[str, str], ...] = (  # as GPTQ's savers repeat them in the metadata
    *({}, {}, {}, {"gptq_checkpoint_format": "gptq_v2"}, {"gptq_bits": "4"}),
    *({"gptq_bits": "2", "gptq_group_size": "-1"}, {"gptq_checkpoint_format": "marlin"}),
    {"gptq_group_size": "0", "gptq_bits": "-999999999"},
    *({"gptq_checkpoint_format": layout} for layout in ("gptq_p", "gemv")),
)
LIES: tuple[Any, ...] = (
    *(None, True, False, -1, 0.5, "64", [], {}, [64], 10**400, 1e300, float("nan"), "nf4", "fp4"),
)
SHAPES: tuple[list[Any], ...] = (
    *([], [-1, -1], [0], [2**40, 2**40], [1] * 70, [1.0], [True], [None], ["2"], [2**63]),
)


def bnb_four_bit(choices: Choices, name: str, told: Expected) -> Tensors:
    """NF4 or FP4 of bitsandbytes, plain or double-quantised, in any block size and storage."""
    shape = [choices.pick(ROWS), choices.pick(COLS)]
    n, block, nested = shape[0] * shape[1], choices.pick((64, 32, 1, 7, 4096)), choices.below(2)
    n_absmax = -(-n // block)
    kind = choices.pick(("nf4", "fp4"))
    state: dict[str, Any] = {"quant_type": kind, "blocksize": block, "shape": shape}
    tensors = {
        name: bytes_of(choices, "U8", [(n + 1) // 2, 1]),
        f"{name}.absmax": bytes_of(choices, "U8" if nested else "F32", [n_absmax]),
    }
    codebook = choices.some(64)
    if codebook[0] > 31:  # any other one is refused
        codebook = BNB_CODEBOOKS[kind.upper()]
    tensors[f"{name}.quant_map"] = "F32", [16], codebook
    if nested:
        state |= {"nested_blocksize": choices.pick((256, 1, 3)), "nested_offset": 0.25}
        n_nested = -(-n_absmax // state["nested_blocksize"])
        tensors[f"{name}.nested_absmax"] = bytes_of(choices, "F32", [n_nested])
        tensors[f"{name}.nested_quant_map"] = bytes_of(choices, "F32", [256])
    raw = bnb_quant_state(choices, state)
    tensors[f"{name}.quant_state.bitsandbytes__{kind}"] = "U8", [len(raw)], raw
    return tensors


def bnb_quant_state(choices: Choices, told: dict[str, Any]) -> bytes:
    """Return its JSON, now and then with a lie or a scrap in it."""
    for _ in range(max(0, choices.below(8) - 5)):
        key = choices.pick(sorted(told))
        told[key] = choices.pick((*LIES, *SIZES, *SHAPES))
    text = json.dumps(told)
    if choices.below(16) == 15:
        at = choices.below(256) % (len(text) + 1)
        text = text[:at] + choices.pick(("", "\0", "[" * 5000, "}", "é", "\ud800", "1e999"))
    return text.encode("utf-8", "surrogatepass")


def bnb_int8(choices: Choices, name: str, told: Expected) -> Tensors:
    """LLM.int8() of bitsandbytes."""
    told.say(quant_method="bitsandbytes", load_in_8bit=True)
    layer = name.removesuffix("weight")
    shape = [choices.pick(ROWS), choices.pick(COLS)]
    tensors = {
        name: bytes_of(choices, "I8", shape),
        f"{layer}SCB": bytes_of(choices, "F32", shape[:1]),
    }
    if choices.below(2):
        tensors[f"{layer}weight_format"] = "U8", [], bytes([choices.below(8) // 7])
    return tensors


FAMILIES: tuple[Family, ...] = (
    *(bnb_four_bit, bnb_int8),
    *structured_words.FAMILIES,
    *structured_integers.FAMILIES,
    *structured_floats.FAMILIES,
    *structured_codebooks.FAMILIES,
    *structured_torchao.FAMILIES,
    *(structured_words.marlin_24, structured_words.exl2),  # last, so that seeds stay what they are
    *structured_trellis.FAMILIES,
)
MOST = 6  # weights of a checkpoint
ODD_NAMES = ("h.0.attn.c_attn.weight", "h.0.mlp.c_fc.weight", "a.weight", "weight", "a", "é")

# What a directory's config.json says instead of what fits.
_WORDS: tuple[dict[str, Any], ...] = (
    *({"quant_method": method} for method in ("quark", "modelopt", "bitnet", "auto-round", "mlx")),
    {"quant_method": "sdnq"},
    {"quant_method": "gptq", "rotation": "hadamard"},
    {"quant_method": "vptq", "config_for_layers": {"a": {"vector_lens": [-1, 10**30]}}},
    {"bits": 10**30, "group_size": -1, "version": "0.0.0.0", "weight_block_size": [1, 1]},
    *({"bits": bits, "group_size": size} for bits, size in ((4, 64), (8, 32), (2, 128))),
)
DIRECTORIES: tuple[dict[str, Any], ...] = (
    *({"quantization_config": section} for section in _WORDS),
    *({"hidden_size": 192, "intermediate_size": 2}, {"hidden_size": 256, "vocab_size": 2}),
    *({"model_type": "gpt2"}, {"hidden_size": 10**30, "num_attention_heads": 10**30}),
)

# The file, and config.json if there is one.
Model = tuple[bytes, dict[str, Any] | None]


def spoil(choices: Choices, tensors: Tensors) -> None:
    """Lose a tensor, or give it another name, dtype or shape."""
    name = choices.pick(sorted(tensors))
    dtype, shape, raw = tensors.pop(name)
    kind = choices.below(5)
    if kind == 1:
        tensors[choices.pick((*sorted(tensors), f"{name}.absmax", f"x{name}"))] = dtype, shape, raw
    elif kind == 2:
        dtype = choices.pick(sorted(BITS))
        n_bytes = BITS[dtype] * (len(raw) // max(BITS[dtype], 8)) // 8 * 8
        n = n_bytes * 8 // BITS[dtype]
        tensors[name] = dtype, [n], raw[:n_bytes]
    elif kind == 3:
        tensors[name] = dtype, [1, *shape, 1], raw
    elif kind == 4:
        tensors[name] = bytes_of(choices, dtype, [choices.pick(ROWS), choices.pick(COLS)])


def checkpoint(choices: Choices) -> Model:
    """Return a few quantised weights, each of any family, some of them spoiled."""
    if choices.below(16) == 15:
        return torchao_file(choices), None
    tensors: Tensors = {}
    told = Expected()
    for letter in "abcdef"[: 1 + choices.below(MOST)]:
        family = choices.pick(FAMILIES)
        name = f"{letter}.weight" if choices.below(8) < 6 else choices.pick(ODD_NAMES)
        if name.startswith("h."):
            told.sizes.setdefault("model_type", choices.pick(("gpt2", "gpt_neo", "")))
        tensors |= family(choices, name, told)
    for _ in range(max(0, choices.below(6) - 3)):
        if tensors:
            spoil(choices, tensors)
    told.metadata |= choices.pick(CONFIGS)
    kind = choices.below(8)
    config = None if kind == 6 else choices.pick(DIRECTORIES) if kind == 7 else told.config_json()
    return file_of(tensors, told.metadata), config


def checkpoint_of(choices: Choices, families: dict[str, Family]) -> Model:
    """Return weights of these names and families, and what is told of them."""
    told = Expected()
    tensors: Tensors = {}
    for name, family in families.items():
        tensors |= family(choices, name, told)
    return file_of(tensors, told.metadata), told.config_json()


def file_of(tensors: Tensors, metadata: dict[str, str]) -> bytes:
    """Return a valid safetensors file."""
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    data = b""
    for name, (dtype, shape, raw) in tensors.items():
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        data += raw
    head = json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + data
