"""Encoders that embed or rank texts: BERT, RoBERTa, XLM-R, Nomic BERT."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from anamnesis.architectures.arch import Find, Naming
from anamnesis.architectures.conversion_operations import first_position
from anamnesis.architectures.model_facts import Facts, malformed, unsupported
from anamnesis.architectures.table.rows import ROWS

_CAUSAL = {"attention.causal": {"type": "bool", "value": False}}
_PADDING = 1  # transformers' own
_LABELS = "classifier.output_labels"


@dataclass(frozen=True, slots=True)
class _Older(Naming):
    """Names with what a model with a head puts before them, and as TensorFlow had them."""

    prefix: str
    has_head: bool = False

    def there(self, name: str, facts: Facts) -> str:
        """`bert.x.gamma` -> `x.weight`."""
        name = name.removeprefix(self.prefix)
        for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
            if name.endswith(old):
                return name.removesuffix(old) + new
        return name

    def back(self, name: str, facts: Facts) -> str:
        """`x` -> `bert.x`, if there is a head."""
        is_head = name.startswith("classifier.")
        return self.prefix + name if self.has_head and not is_head else name


def output_labels(facts: Facts) -> Mapping[str, Any]:
    """Return the key for the meaning of a head's numbers, if config.json has it."""
    labels = facts.get("id2label")
    if not isinstance(labels, Mapping) or not labels:
        return {}
    try:
        words = [str(labels[i]) for i in sorted(labels, key=int)]
    except ValueError:
        raise malformed("id2label is not by numbers") from None
    if len(words) == 2 and words[0] == "LABEL_0":  # transformers' own
        return {}
    return {_LABELS: {"type": "string", "value": words}}


def _encoder(facts: Facts) -> Mapping[str, Any]:
    return {**_CAUSAL, **output_labels(facts)}


def _roberta(facts: Facts) -> Mapping[str, Any]:
    """Return the keys of an encoder whose positions begin behind that of padding."""
    length = facts.number("max_position_embeddings") - first_position(facts)
    if facts.get("type_vocab_size") != 1:
        raise unsupported(
            f"type_vocab_size is {facts.get('type_vocab_size')!r}; only 1 is known here"
        )
    return {**_encoder(facts), "context_length": {"type": "uint32", "value": length}}


def _roberta_config(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    given = config.get("pad_token_id")
    padding = _PADDING if given is None else given
    return {
        **_encoder_config(find, config),
        "pad_token_id": padding,
        "max_position_embeddings": config["max_position_embeddings"] + padding + 1,
        "type_vocab_size": 1,
    }


def _encoder_config(find: Find, config: Mapping[str, Any]) -> Mapping[str, Any]:
    find("attention.causal")
    return labelled(find)


def labelled(find: Find) -> Mapping[str, Any]:
    """Return what config.json says by that key."""
    labels = find(_LABELS)
    if labels is None:
        return {}
    return {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }


# Positions that Nomic's models have by their config, and were trained for.
_TRAINED = {8192: 2048, 2048: 512}
_AS_TRAINED = {
    "activation_function": "swiglu",
    "causal": False,
    "qkv_proj_bias": False,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "prenorm": False,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
}


def _nomic(facts: Facts) -> Mapping[str, Any]:
    """Return the keys of Nomic's encoders, by their own config.json or transformers 5's."""
    for name, value in _AS_TRAINED.items():
        if facts.get(name) not in (None, value):
            raise unsupported(
                f"{name} is {facts.get(name)!r}, and llama.cpp's nomic-bert has {value!r}"
            )
    if facts.get("n_positions") is None:
        return _encoder(facts)
    given = facts.number("n_positions")
    trained = facts.get("max_trained_positions")
    if given not in _TRAINED or trained not in (None, 2048):
        raise unsupported(
            f"n_positions is {given} and max_trained_positions {trained!r}; llama.cpp"
            " knows what models of 8192 or 2048 positions were trained for"
        )
    return {**_encoder(facts), "context_length": {"type": "uint32", "value": _TRAINED[given]}}


ARCHS = (
    replace(ROWS["bert"], computed=_encoder, uncomputed=_encoder_config, naming=_Older("bert.")),
    *(
        replace(
            ROWS[name],
            computed=_roberta,
            uncomputed=_roberta_config,
            derived=lambda facts: {"pad_token_id": _PADDING},
            naming=_Older("roberta.", has_head),
        )
        for name, has_head in (
            ("roberta", False),
            ("xlm-roberta", False),
            ("xlm-roberta-ranking", True),
        )
    ),
    replace(
        ROWS["nomic_bert"], computed=_nomic, uncomputed=_encoder_config, naming=_Older("bert.")
    ),
)
