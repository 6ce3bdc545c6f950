"""llama.cpp's own records of mixes: which type each tensor of twelve models gets in each."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from anamnesis.schemes.families.ggml.choose import Given
from anamnesis.schemes.families.ggml.header import in_order
from anamnesis.schemes.families.ggml.mixes import ModelFacts

# `tests/snapshots/*.schema` of llama.cpp, as digests: what the fast tests read.
RECORDED = Path(__file__).parents[1] / "schemes/recorded/mixes.json"

# What the records leave out: the architecture, and lengths of rows that are not the embeddings'.
MODELS: dict[str, tuple[str, dict[str, int]]] = {
    "deepseek-v3.1": (
        "deepseek2",
        {
            "attn_k_b": 128,
            "attn_v_b": 512,
            "attn_q_b": 1536,
            "attn_output": 16384,
            "ffn_down": 18432,
            "ffn_down_exps": 2048,
            "ffn_down_shexp": 2048,
        },
    ),
    "gemma-3-4b-it": ("gemma3", {"attn_output": 2048, "ffn_down": 10240}),
    "glm-4.6v": (
        "glm4moe",
        {
            "attn_output": 12288,
            "ffn_down": 10944,
            "ffn_down_exps": 1408,
            "ffn_down_shexp": 1408,
        },
    ),
    "gpt-oss-120b": ("gpt-oss", {"attn_output": 4096}),
    "meta-llama-3.1-70b-instruct": ("llama", {"ffn_down": 28672}),
    "nvidia-nemotron-3-nano-30b-a3b": (
        "nemotron_h_moe",
        {"attn_output": 4096, "ssm_out": 4096, "ffn_down_exps": 1856, "ffn_down_shexp": 3712},
    ),
    "qwen3-0.6b": ("qwen3", {"attn_output": 2048, "ffn_down": 3072}),
    "qwen3-14b": ("qwen3", {"ffn_down": 17408}),
    "qwen3-coder-next": (
        "qwen3next",
        {"attn_output": 4096, "ssm_out": 4096, "ffn_down_exps": 512, "ffn_down_shexp": 512},
    ),
    "qwen3.5-397b-a17b": (
        "qwen35moe",
        {"attn_output": 8192, "ssm_out": 8192, "ffn_down_exps": 1024, "ffn_down_shexp": 1024},
    ),
    "qwen3.6-27b": ("qwen35", {"attn_output": 6144, "ssm_out": 6144, "ffn_down": 17408}),
    "step-3.5-flash": (
        "step35",
        {"attn_output": 8192, "ffn_down": 11264, "ffn_down_exps": 1280, "ffn_down_shexp": 1280},
    ),
}
_STACKS = ("_exps", "attn_k_b", "attn_v_b")


class Record(NamedTuple):
    """Of one model.

    Attributes
    ----------
    facts : ModelFacts
    tensors : list of Given
        Those that are not kept, in order.
    types : dict of str to dict of str to str
        By mix and tensor.
    """

    facts: ModelFacts
    tensors: list[Given]
    types: dict[str, dict[str, str]]


def read(path: Path) -> Record:
    """Return a record of llama.cpp's: types in it are those that are not the mix's own."""
    told: dict[str, int] = {}
    bases: dict[str, str] = {}
    others: dict[str, dict[str, str]] = {}
    mix = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# n_embd"):
            told = {key: int(n) for key, n in re.findall(r"(\w+)=(\d+)", line)}
        elif line.startswith("["):
            mix, _, base = line[1:].lower().partition("] ")
            bases[mix], others[mix] = base.upper(), {}
        elif line and not line.startswith("#"):
            name, _, type = line.rpartition(" ")
            others[mix][name] = type.upper()
    arch, rows = MODELS[path.stem]
    facts = ModelFacts(
        arch,
        told["n_layer"],
        told["n_head"],
        told["n_head_kv"],
        told.get("n_expert", 0),
        told["n_layer"] == 80,
    )
    named = {name for types in others.values() for name in types}
    names = in_order(named | _never_named(named))
    tensors = [Given(name, _shape(name, rows, told["n_embd"])) for name in names]
    types = {
        mix: {name: others[mix].get(name, base) for name in names} for mix, base in bases.items()
    }
    return Record(facts, tensors, types)


def _never_named(names: set[str]) -> set[str]:
    """Return tensors that are of the mix's own type in all mixes, so that no line is theirs."""
    alike = {"attn_k_b": ("attn_v_b",)}
    for part in ("up", "gate"):
        if any(f"ffn_{part}_exps" in name for name in names):
            alike["ffn_down_exps"] = (*alike.get("ffn_down_exps", ()), f"ffn_{part}_exps")
    return {
        name.replace(one, other)
        for one, others in alike.items()
        for other in others
        for name in names
        if f".{one}." in name
    }


def _shape(name: str, rows: Mapping[str, int], n_embd: int) -> tuple[int, ...]:
    part = name.split(".")[-2]
    cols = rows.get(part, n_embd)
    return (128, 64, cols) if part.endswith(_STACKS) else (64, cols)


# --- as digests -----------------------------------------------------------------------------------


def digest(types: Mapping[str, str | None]) -> str:
    """Return what tells one choice for all tensors from another."""
    lines = "".join(f"{name} {type}\n" for name, type in types.items())
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def as_json(record: Record) -> dict[str, Any]:
    """Return a record with its tensors in runs of layers, and of types digests only."""
    layers: dict[str, list[int]] = {}
    for name, shape, _ in record.tensors:
        number, _, rest = name.removeprefix("blk.").partition(".")
        is_layer = name.startswith("blk.")
        key = " ".join(map(str, (f"blk.*.{rest}" if is_layer else name, *shape)))
        layers.setdefault(key, []).append(int(number) if is_layer else -1)
    return {
        "facts": list(record.facts),
        "tensors": {key: _runs(numbers) for key, numbers in layers.items()},
        "digests": {mix: digest(types) for mix, types in record.types.items()},
    }


def _runs(numbers: list[int]) -> str:
    """Return `0-3 7 9-10`; nothing for what is of no layer."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and runs[-1][-1] == n - 1:
            runs[-1][1:] = [n]
        elif n >= 0:
            runs.append([n])
    return " ".join("-".join(map(str, run)) for run in runs)


def from_json(told: Mapping[str, Any]) -> tuple[ModelFacts, list[Given], dict[str, str]]:
    """Return the facts and tensors of a model, and a digest for each mix."""
    shapes: dict[str, tuple[int, ...]] = {}
    for key, runs in told["tensors"].items():
        pattern, *sizes = key.split()
        shape = tuple(map(int, sizes))
        for run in runs.split() or ["0"]:
            first, _, last = run.partition("-")
            for n in range(int(first), int(last or first) + 1):
                shapes[pattern.replace("*", str(n))] = shape
    tensors = [Given(name, shapes[name]) for name in in_order(shapes)]
    return ModelFacts(*told["facts"]), tensors, told["digests"]


def recorded() -> dict[str, Any]:
    """Return all of them by the model's name."""
    found: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found
