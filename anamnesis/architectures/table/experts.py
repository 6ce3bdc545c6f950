"""Experts in rows: single ones are stacked, and stacks of gate and up are halved."""

from __future__ import annotations

from anamnesis.architectures.arch import Rule
from anamnesis.architectures.conversion_operations import Halves, Stack
from anamnesis.architectures.table.blocks import layer


def experts(module: str, gate: str, up: str, down: str) -> tuple[Rule, ...]:
    """Return the rules of single experts, `MODULE.experts.{xid}.NAME`, which are stacked."""
    names = {gate: "ffn_gate_exps", up: "ffn_up_exps", down: "ffn_down_exps"}
    return tuple(
        layer(f"{module}.experts.{{xid}}.{hf}", gguf, Stack()) for hf, gguf in names.items()
    )


def stacks(module: str) -> tuple[Rule, ...]:
    """Return the rules of stacks as in transformers 5: [E, 2 n, cols] and [E, cols, n]."""
    stem = f"model.layers.{{bid}}.{module}.experts"
    return (
        Rule(
            f"{stem}.gate_up_proj",
            ("blk.{bid}.ffn_gate_exps.weight", "blk.{bid}.ffn_up_exps.weight"),
            (Halves(),),
            exact=True,
        ),
        Rule(f"{stem}.down_proj", ("blk.{bid}.ffn_down_exps.weight",), exact=True),
    )


EXPERTS = (
    *experts("mlp", "gate_proj", "up_proj", "down_proj"),
    *stacks("mlp"),
    layer("mlp.gate", "ffn_gate_inp"),
)
