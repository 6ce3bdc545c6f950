"""Rows of architectures: what rows.json says of each, before functions are added.

A rule there is `"HF": "GGUF: STEPS"`. Names that begin with a dot are of a layer; a step is one of
`STEPS`, and `exact` is of names without `.weight` or `.bias` behind them. A key is `"KEY": "FACT
TYPE"`, of uint32 without a type. A row has its model's type for a name, and for llama.cpp's name if
it says no other; what it does not say is as in the one that it is like.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from anamnesis.architectures import conversion_operations as operations
from anamnesis.architectures.arch import IN_LAYER, Arch, Op, Rule, Vocabulary
from anamnesis.architectures.keys import keys_of
from anamnesis.base.plain_json import json_table

STEPS: Mapping[str, Op] = {
    "permute-heads": operations.permute("num_attention_heads"),
    "permute-kv": operations.permute("num_key_value_heads"),
    "stack": operations.Stack(),
    "stack-heads": operations.Stack("num_attention_heads"),
    "stack-kv": operations.Stack("num_key_value_heads"),
    "halves": operations.Halves(),
    "alternate": operations.Alternate(),
    # [H (nope + v), rank] -> [H, nope, rank], [H, v, rank]
    "per-head": operations.PerHead("num_attention_heads", ("qk_nope_head_dim", "v_head_dim")),
    "turn": operations.Turn(),
    "turn-first": operations.Turn((0,)),
    "as-column": operations.reshape(lambda s: (*s, 1), lambda s: s[:-1]),
    "as-row": operations.reshape(lambda s: s[:-1], lambda s: (*s, 1)),
    # [channels, 1, length] -> [channels, length]
    "squeeze": operations.reshape(
        lambda s: (s[0], *s[2:]), lambda s: (s[0], 1, s[1]) if len(s) == 2 else s
    ),
    "plus-one": operations.mapped("plus-one", "minus-one"),
    "minus-exp": operations.mapped("minus-exp", "log-of-minus"),
    "without-padding": operations.Each(operations.without_padding, lambda weight, _: weight),
    "behind-padding": operations.Each(operations.behind_padding, operations.with_padding),
    "value-rows": operations.value_heads(),
    "value-rows-after-keys": operations.value_heads(after_keys=True),
    "value-scalars": operations.value_heads(is_scalar=True),
    "value-columns": operations.value_heads(in_columns=True),
    "apart": operations.Apart(),
}
_HF_LAYER, _RMS = "model.layers.{bid}.", "attention.layer_norm_rms_epsilon"
_TABLE: Mapping[str, Any] = json_table(__file__)


def _rules(given: Iterable[str | Mapping[str, str]]) -> tuple[Rule, ...]:
    """Return rules in order: those of a block by its name, and others."""
    made: list[Rule] = []
    for some in given:
        if isinstance(some, str):
            made += _rules(_TABLE["blocks"][some])
        else:
            made += [_rule(hf, said) for hf, said in some.items()]
    return tuple(made)


def _rule(hf: str, said: str) -> Rule:
    names, _, steps = said.partition(": ")
    words = steps.split(", ") if steps else []
    return Rule(
        _of_layer(hf, _HF_LAYER),
        tuple(_of_layer(name, IN_LAYER) for name in names.split()),
        tuple(STEPS[word] for word in words if word != "exact"),
        "exact" in words,
    )


def _of_layer(name: str, layer: str) -> str:
    return layer + name[1:] if name.startswith(".") else name


def _row(name: str) -> Mapping[str, Any]:
    """Return the fields of a row, with those of the one that it is like."""
    row = _TABLE["rows"][name]
    usual = _row(row["like"]) if "like" in row else {"gguf": name}
    return {**usual, "model_type": name, **row}


def _arch(name: str) -> Arch:
    row = _row(name)
    return Arch(
        **{
            **{field: value for field, value in row.items() if field != "like"},
            "hf": tuple(row["hf"]),
            "rules": _rules(row["rules"]),
            "keys": keys_of(row.get("keys", {})),
            "vocabulary": Vocabulary(*row.get("vocabulary", ["gpt2"])),
            "dropped": tuple(row.get("dropped", ())),
            "biases": tuple(row["biases"].split()) if "biases" in row else None,
            "required": tuple(row.get("required", _RMS).split()),
            "switches": {fact: tuple(n.split()) for fact, n in row.get("switches", {}).items()},
        }
    )


ROWS: Mapping[str, Arch] = {name: _arch(name) for name in _TABLE["rows"]}
