"""What mlx-lm makes of single layers, by the type of model, as rows of data.

Most of its classes quantise every linear layer and embedding alike. A `quant_predicate` gives some
layers 8 bits, or leaves them. What a `sanitize` renames or splits by its weight alone loses its
scales there, so that it can only be plain in a file with the names of transformers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, NamedTuple


class Row(NamedTuple):
    """What becomes of some layers."""

    modules: str
    way: Literal["plain", "alike", "8 bits"]
    why: str = ""
    beside: str = ""
    when: str = ""

    def fits(self, module: str, shapes: Mapping[str, Any]) -> bool:
        """Return whether it is about a module of a model with such weights."""
        match = _ending(self.modules).search(module)
        return match is not None and (
            not self.beside or f"{module[: match.start()]}{self.beside}.weight" in shapes
        )


@cache
def _ending(modules: str) -> re.Pattern[str]:
    return re.compile(f"(?:{modules})$")


_KEPT = "which mlx-lm leaves"
_RENAMED = "which mlx-lm renames without its scales"
_NORMED = "which mlx-lm normalises"


def _in_8_bits(modules: str) -> tuple[Row, ...]:
    return (Row(modules, "8 bits"),)


def _alike(modules: str) -> tuple[Row, ...]:
    return (Row(modules, "alike"),)


_GATE = _in_8_bits(r"mlp\.gate")
_GATES = _in_8_bits(r"mlp\.gate|shared_expert_gate")
_BAILING = (Row(r"mlp\.gate\.gate_proj", "8 bits"), Row(r"mlp\.gate", "plain", _RENAMED))
_BAILING_HEAD = Row("^lm_head", "plain", _NORMED, when="norm_head")
_GRANITE = r"self_attn\.o_proj|mlp\.down_proj|^lm_head"

# Of every model, and before its own.
_OF_ALL = (Row(r"(^|\.)lm_head", "plain", "tied to the embedding", when="tie_word_embeddings"),)

# The first row that fits is that of a layer. Routers that no row fits are plain: in many classes
# they are no linear layers.
ROWS: dict[str, tuple[Row, ...]] = {
    "Klear": _GATE,
    "afmoe": _in_8_bits(r"router\.gate"),
    "bailing_hybrid": (
        *_BAILING,
        Row(r"attention\.(embed_q|unembed_out)", "plain", _KEPT),
    ),
    "baichuan_m1": (Row("^lm_head", "plain", _NORMED),),
    "bailing_moe": (*_BAILING, _BAILING_HEAD),
    "bailing_moe_linear": (*_BAILING, _BAILING_HEAD),
    "bailing_moe_v3": (
        Row(r"^(model\.word_embeddings|lm_head)", "plain", _KEPT),
        Row(r"attention\.(q_[ab]_proj|kv_a_proj_with_mqa|b_proj)", "plain", _KEPT),
        Row(r"attention\.(embed_q|unembed_out)", "plain", _KEPT),
        Row(r"(?<=attention\.)[qg]_proj", "plain", _KEPT, beside="kv_a_proj_with_mqa"),
    ),
    "dbrx": _alike(r"router\.layer"),
    "deepseek_v41": (  # with the names of DeepSeek's own files
        Row(r"^(head|embed|layers\.\d+\.ffn\.experts\.\d+\.w[123])", "plain", _RENAMED),
        Row(r"^layers\.\d+\.attn\.wo_a", "plain", "which mlx-lm splits before it quantises"),
    ),
    "ernie4_5_moe": _alike(r"mlp\.gate"),
    "gemma4": _in_8_bits(r"router\.proj"),
    "gemma4_text": _in_8_bits(r"router\.proj"),
    "gpt_oss": _in_8_bits("router"),
    "granite": _in_8_bits(_GRANITE),
    "granitemoe": _in_8_bits(rf"{_GRANITE}|block_sparse_moe\.router\.layer"),
    "granitemoehybrid": (
        Row(r"router\.layer", "8 bits"),
        Row(r"shared_mlp\.(input|output)_linear", "alike", beside="block_sparse_moe.router.layer"),
        Row(r"shared_mlp\.(input|output)_linear", "plain", _RENAMED),
    ),
    "iquestloopcoder": (Row(r"gate_projections\.\d+", "plain", _KEPT),),
    "jamba": _in_8_bits("router"),
    "kimi_k3": (
        Row(r"mlp\.gate|block_sparse_moe\.gate", "8 bits"),
        Row("res_proj", "plain", _KEPT),
    ),
    "kimi_linear": (
        *_GATE,
        Row(r"block_sparse_moe\.(gate|shared_experts\.\w+)", "plain", _RENAMED),
    ),
    "laguna": (Row(r"mlp\.gate\.proj", "8 bits"), Row(r"mlp\.gate", "plain", _RENAMED)),
    "lfm2_moe": (
        Row(r"feed_forward\.gate", "8 bits"),
        Row(r"feed_forward\.w[123]", "plain", _RENAMED),
    ),
    "llama4": _alike("router"),
    "longcat_flash": _in_8_bits("classifier"),
    "longcat_flash_ngram": (
        Row("classifier", "8 bits"),
        Row(r"^model\.embed_tokens", "plain", _RENAMED),
    ),
    "mellum": _GATE,
    "minicpm": (
        Row(r"^model\.embed_tokens", "alike", beside="lm_head"),
        Row(r"^model\.embed_tokens", "plain", "which mlx-lm has as the output head, too"),
    ),
    "minimax": _in_8_bits(r"block_sparse_moe\.gate"),
    "minimax_m3_vl": _in_8_bits(r"block_sparse_moe\.gate"),
    "mistral3": _alike(r"mlp\.gate"),  # of mistral4
    "mistral4": _alike(r"mlp\.gate"),
    "mixtral": _alike(r"block_sparse_moe\.gate"),
    "muse_spark": (
        Row(r"\.layers\.(0|LAST)\.mlp\.experts\.\w+", "plain", _KEPT),
        Row(r"^model\.language_model\.layers\.\d+\.mlp\.experts\.(gate|up|down)_proj", "alike"),
        Row("", "plain", _KEPT),
    ),
    "olmoe": _alike(r"mlp\.gate"),
    "phimoe": _alike(r"block_sparse_moe\.gate"),
    "phixtral": _alike(r"moe\.gate"),
    "qwen2_moe": _alike(r"mlp\.gate|shared_expert_gate"),
    "qwen3_5": _GATES,
    "qwen3_5_moe": _GATES,
    "qwen3_moe": _GATE,
    "qwen3_next": _GATES,
    "qwen3_vl_moe": _GATE,
    "rwkv7": _in_8_bits(r"lora\.2\b.*|embeddings.*"),
    "spark2_5": (
        Row(r"self_attn\.g_proj", "plain", _KEPT),
        Row(r"^model\.embed_tokens", "plain", _RENAMED),
    ),
    "step3p5": _in_8_bits(r"mlp\.gate\.gate|moe\.gate"),
}

# Types of which mlx-lm uses `kv_b_proj` as it is. All other classes split it before they quantise,
# and take one that is quantised for affine integers, or for plain.
KEEPS_KV_B = frozenset({"deepseek_v2", "minicpm3", "youtu_llm"})

# Types of models of which mlx-lm stacks the experts of a file if they are plain, and misses them
# if they are quantised: the `sanitize` of their classes asks for weights alone.
PLAIN_EXPERTS = frozenset(
    {
        *("Klear", "bailing_moe_v3", "ernie4_5_moe", "kimi_linear", "lfm2_moe", "mellum"),
        *("minimax", "nemotron_h", "qwen3_moe", "qwen3_next"),
    }
)

# Types that mlx-lm has a class for.
CLASSES = frozenset(
    {
        *("Klear", "afm7", "afmoe", "apertus", "baichuan_m1", "bailing_hybrid", "bailing_moe"),
        *("bailing_moe_linear", "bailing_moe_v3", "bitnet", "cohere", "cohere2", "dbrx"),
        *("deepseek", "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v41", "dots1"),
        *("ernie4_5", "ernie4_5_moe", "exaone", "exaone4", "exaone_moe", "falcon_h1", "gear"),
        *("gemma", "gemma2", "gemma3", "gemma3_text", "gemma3n", "gemma4", "gemma4_text", "glm"),
        *("glm4", "glm4_moe", "glm4_moe_lite", "glm_moe_dsa", "gpt2", "gpt_bigcode", "gpt_neox"),
        *("gpt_oss", "gptj", "granite", "granitemoe", "granitemoehybrid", "helium", "hunyuan"),
        *("hunyuan_v1_dense", "internlm2", "internlm3", "iquestloopcoder", "jamba", "kimi_k25"),
        *("kimi_k3", "kimi_linear", "kimi_vl", "laguna", "lfm2-vl", "lfm2", "lfm2_moe"),
        *("lille-130m", "llama", "llama4", "llama4_text", "longcat_flash", "longcat_flash_ngram"),
        *("mamba", "mamba2", "mellum", "mimo", "mimo_v2_flash", "minicpm", "minicpm3", "minimax"),
        *("minimax_m3_vl", "ministral3", "mistral3", "mistral4", "mixtral", "muse_glimmer"),
        *("muse_spark", "nanbeige", "nanochat", "nemotron-nas", "nemotron", "nemotron_h", "olmo"),
        *("olmo2", "olmo3", "olmo_hybrid", "olmoe", "openelm", "phi", "phi3", "phi3small"),
        *("phimoe", "phixtral", "pixtral", "plamo", "plamo2", "plamo3", "prism_hadamard_qwen35"),
        *("qwen", "qwen2", "qwen2_moe", "qwen2_vl", "qwen3", "qwen3_5", "qwen3_5_moe"),
        *("qwen3_moe", "qwen3_next", "qwen3_vl", "qwen3_vl_moe", "recurrent_gemma", "rwkv7"),
        *("seed_oss", "smollm3", "solar_open", "spark2_5", "stablelm", "starcoder2", "step3p5"),
        *("talkie", "telechat3", "youtu_llm"),
    }
)

# Types whose class is another's: `MODEL_REMAPPING` of mlx-lm.
ALIASES = {
    "mistral": "llama",
    "llava": "mistral3",
    "phi-msft": "phixtral",
    "falcon_mamba": "mamba",
    "joyai_llm_flash": "deepseek_v3",
    "kimi_k2": "deepseek_v3",
    "qwen2_5_vl": "qwen2_vl",
    "minimax_m2": "minimax",
    "iquestcoder": "llama",
    "xverse": "llama",
    "gemma4_unified": "gemma4",
    "deepseek_v41_text": "deepseek_v41",
}
_BY_ARCHITECTURE = {("bailing_hybrid", "BailingMoeV3ForCausalLM"): "bailing_moe_v3"}

# What a module of a file becomes in mlx-lm, where its config says something of it.
_NESTED = (("model.language_model.", "language_model.model."),)
_PATHS = {
    "gemma4": _NESTED,
    "kimi_k3": ((".block_sparse_moe.gate", ".mlp.gate"),),
    "qwen3_5": _NESTED,
    "qwen3_5_moe": _NESTED,
    "qwen3_vl_moe": _NESTED,
    "step3p5": ((".moe.gate", ".mlp.gate.gate"),),
}


def class_of(config: Mapping[str, Any]) -> str:
    """Return the type of model that mlx-lm has a config's class under; empty without one."""
    kind = config.get("model_type")
    if not isinstance(kind, str):
        return ""
    given = config.get("architectures")
    names = filter(
        lambda name: isinstance(name, str), given if isinstance(given, list) else [given]
    )
    by_architecture = (_BY_ARCHITECTURE.get((kind, name)) for name in names)
    return next(filter(None, by_architecture), ALIASES.get(kind, kind))


def rows_of(config: Mapping[str, Any]) -> list[Row]:
    """Return the rows that a config's model has, the first of which counts."""
    given = [part for part in (config, config.get("text_config")) if isinstance(part, dict)]
    said = {key for part in given for key, value in part.items() if value is True}
    counts = [n for n in (part.get("num_hidden_layers") for part in given) if type(n) is int]
    last = str(counts[-1] - 1) if counts else ""
    rows = (*_OF_ALL, *ROWS.get(class_of(config), ()))
    return [
        row._replace(modules=row.modules.replace("LAST", last))
        for row in rows
        if not row.when or row.when in said
    ]


def path_in_mlx(kind: str, module: str) -> str:
    """Return what mlx-lm calls a module of a file, of a type of models."""
    for old, new in _PATHS.get(kind, ()):
        if new not in module:
            module = module.replace(old, new)
    return module
