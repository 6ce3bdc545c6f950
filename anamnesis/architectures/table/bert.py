"""Encoders that embed or rank texts: BERT, RoBERTa, XLM-R, Nomic BERT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anamnesis.architectures import operations
from anamnesis.architectures.arch import Arch, Find, Op, Rule, Vocabulary
from anamnesis.architectures.model_facts import CONFIG, Facts
from anamnesis.architectures.table.blocks import ATTENTION_BIASES
from anamnesis.architectures.table.llama import POOLING
from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.schemes.core.weight import Weight

_CAUSAL = {"attention.causal": {"type": "bool", "value": False}}
_PADDING = 1  # transformers' own
_LABELS = "classifier.output_labels"
_TYPE_COUNT = "tokenizer.ggml.token_type_count"


@dataclass(frozen=True, slots=True)
class _Older:
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


@dataclass(frozen=True, slots=True)
class _Behind:
    """Rows of positions behind those that come before the first one."""

    def there(self, weights: Sequence[Weight], facts: Facts) -> list[Weight]:
        """(first + n, cols) -> (n, cols)."""
        first = _first_position(facts)
        made = []
        for weight in weights:
            n = weight.shape[0]
            if n <= first:
                raise ParseError(f"{weight.name} has {n} rows, of which {first} are before any")
            made.append(operations.rows_between(weight, weight.name, n, first, n))
        return made

    def back(self, weights: Sequence[Weight], facts: Facts) -> list[Weight]:
        """(n, cols) -> (first + n, cols): rows that nothing reads are as the first one."""
        first = _first_position(facts)
        made = []
        for weight in weights:
            n, *cols = weight.shape
            order = [*[0] * first, *range(n)]
            shape = (first + n, *cols)
            made.append(operations.gathered_rows(weight.name, [weight], n, order, shape))
        return made


def _first_position(facts: Facts) -> int:
    padding = facts.get("pad_token_id")
    if type(padding) is not int or padding < 0:
        raise ParseError(f"pad_token_id is {padding!r}, not a token's number", source=CONFIG)
    return padding + 1


def _rules(*positions: Op) -> tuple[Rule, ...]:
    inner = {
        "attention.self.query": "attn_q",
        "attention.self.key": "attn_k",
        "attention.self.value": "attn_v",
        "attention.output.dense": "attn_output",
        "attention.output.LayerNorm": "attn_output_norm",
        "intermediate.dense": "ffn_up",
        "output.dense": "ffn_down",
        "output.LayerNorm": "layer_output_norm",
    }
    return (
        Rule("embeddings.word_embeddings", ("token_embd",)),
        Rule("embeddings.token_type_embeddings", ("token_types",)),
        Rule("embeddings.position_embeddings", ("position_embd",), positions),
        Rule("embeddings.LayerNorm", ("token_embd_norm",)),
        *(
            Rule(f"encoder.layer.{{bid}}.{hf}", (f"blk.{{bid}}.{gguf}",))
            for hf, gguf in inner.items()
        ),
    )


_NORM_BIASES = ("token_embd_norm.bias", "attn_output_norm.bias", "layer_output_norm.bias")
_BIASES = (*_NORM_BIASES, *ATTENTION_BIASES, "ffn_up.bias", "ffn_down.bias")
_HEAD = (Rule("classifier.dense", ("cls",)), Rule("classifier.out_proj", ("cls.output",)))
_NOMIC = (
    Rule("embeddings.word_embeddings", ("token_embd",)),
    Rule("embeddings.token_type_embeddings", ("token_types",)),
    Rule("emb_ln", ("token_embd_norm",)),
    *(
        Rule(f"encoder.layers.{{bid}}.{hf}", (f"blk.{{bid}}.{gguf}",))
        for hf, gguf in {
            "attn.Wqkv": "attn_qkv",
            "attn.out_proj": "attn_output",
            "norm1": "attn_output_norm",
            "norm2": "layer_output_norm",
            "mlp.fc11": "ffn_up",
            "mlp.fc12": "ffn_gate",
            "mlp.fc2": "ffn_down",
        }.items()
    ),
)
# What stands above the encoder, which embeddings do not need.
_ABOVE = (
    *("*pooler.dense.*", "*embeddings.position_ids", "cls.predictions*", "cls.seq_relationship*"),
    "lm_head.*",
)


def output_labels(facts: Facts) -> Mapping[str, Any]:
    """Return the key for the meaning of a head's numbers, if config.json has it."""
    labels = facts.get("id2label")
    if not isinstance(labels, Mapping) or not labels:
        return {}
    try:
        words = [str(labels[i]) for i in sorted(labels, key=int)]
    except ValueError:
        raise ParseError("id2label is not by numbers", source=CONFIG) from None
    if len(words) == 2 and words[0] == "LABEL_0":  # transformers' own
        return {}
    return {_LABELS: {"type": "string", "value": words}}


def _encoder(facts: Facts) -> Mapping[str, Any]:
    return {**_CAUSAL, **output_labels(facts)}


def _roberta(facts: Facts) -> Mapping[str, Any]:
    """Return the keys of an encoder whose positions begin behind that of padding."""
    length = facts.number("max_position_embeddings") - _first_position(facts)
    if facts.get("type_vocab_size") != 1:
        raise UnsupportedError(
            f"{CONFIG}: type_vocab_size is {facts.get('type_vocab_size')!r}; only 1 is known here"
        )
    return {**_encoder(facts), "context_length": {"type": "uint32", "value": length}}


def _padding(facts: Facts) -> Mapping[str, Any]:
    return {"pad_token_id": _PADDING}


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
            raise UnsupportedError(
                f"{CONFIG}: {name} is {facts.get(name)!r}, and llama.cpp's nomic-bert has {value!r}"
            )
    if facts.get("n_positions") is None:
        return _encoder(facts)
    given = facts.number("n_positions")
    trained = facts.get("max_trained_positions")
    if given not in _TRAINED or trained not in (None, 2048):
        raise UnsupportedError(
            f"{CONFIG}: n_positions is {given} and max_trained_positions {trained!r}; llama.cpp"
            " knows what models of 8192 or 2048 positions were trained for"
        )
    return {**_encoder(facts), "context_length": {"type": "uint32", "value": _TRAINED[given]}}


_BERT = Arch(
    gguf="bert",
    hf=("BertModel", "BertForMaskedLM"),
    model_type="bert",
    tokenizer="bert",
    rules=_rules(),
    switches={"": _BIASES},
    keys=(POOLING,),
    computed=_encoder,
    vocabulary=Vocabulary("bert"),
    dropped=_ABOVE,
    naming=_Older("bert."),
    uncomputed=_encoder_config,
    pools=True,
)
_ROBERTA = replace(
    _BERT,
    hf=("RobertaModel",),
    model_type="roberta",
    tokenizer="gpt2",
    rules=_rules(_Behind()),
    computed=_roberta,
    uncomputed=_roberta_config,
    derived=_padding,
    vocabulary=Vocabulary("gpt2", {"after": {_TYPE_COUNT: 1}}),
    naming=_Older("roberta."),
)
_XLM_ROBERTA = replace(
    _ROBERTA,
    hf=("XLMRobertaModel",),
    model_type="xlm-roberta",
    tokenizer="t5",
    vocabulary=Vocabulary("unigram"),
)
ARCHS = (
    _BERT,
    _ROBERTA,
    _XLM_ROBERTA,
    replace(
        _XLM_ROBERTA,
        hf=("XLMRobertaForSequenceClassification",),
        rules=(*_XLM_ROBERTA.rules, *_HEAD),
        switches={"": (*_BIASES, "cls.bias", "cls.output.bias")},
        naming=_Older("roberta.", has_head=True),
    ),
    replace(
        _BERT,
        gguf="nomic-bert",
        hf=("NomicBertModel",),
        model_type="nomic_bert",
        tokenizer="",
        config={"hidden_act": "silu"},
        rules=_NOMIC,
        switches={"": _NORM_BIASES},
        computed=_nomic,
    ),
)
