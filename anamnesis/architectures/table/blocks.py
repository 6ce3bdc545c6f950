"""What rows have in common: names of a decoder's layers."""

from __future__ import annotations

from anamnesis.architectures.arch import Op, Rule
from anamnesis.architectures.rule_operations import Halves, Stack


def layer(hf: str, gguf: str, *ops: Op) -> Rule:
    """Return the rule of a tensor of a layer, by what each calls it there."""
    return Rule(f"model.layers.{{bid}}.{hf}", (f"blk.{{bid}}.{gguf}",), ops)


def apart(hf: str, gguf: tuple[str, ...], *ops: Op) -> Rule:
    """Return the rule of a tensor of a layer that becomes several."""
    return Rule(f"model.layers.{{bid}}.{hf}", tuple(f"blk.{{bid}}.{name}" for name in gguf), ops)


def plain(pairs: dict[str, str]) -> tuple[Rule, ...]:
    """Return the rules of tensors of a layer that are only called otherwise."""
    return tuple(layer(hf, gguf) for hf, gguf in pairs.items())


OUTER = (
    Rule("model.embed_tokens", ("token_embd",)),
    Rule("model.norm", ("output_norm",)),
    Rule("lm_head", ("output",)),
)
NORMS = plain({"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"})
ATTENTION = plain(
    {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
    }
)
QKV_BIASES = ("attn_q.bias", "attn_k.bias", "attn_v.bias")
ATTENTION_BIASES = (*QKV_BIASES, "attn_output.bias")
MLP_BIASES = ("ffn_up.bias", "ffn_gate.bias", "ffn_down.bias")
HEAD_NORMS = plain({"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"})
MLP = plain({"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"})


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
