"""What `digests.py` asks for, and of which models: real ones, and some of a fixed seed."""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

__all__ = [
    "COMMANDS",
    "CONTAINERS",
    "FLOATS",
    "MADE",
    "OF_EXPERTS",
    "ON_MODELS",
    "OPTIONS",
    "OTHER_WORDS",
    "REPACKED",
    "REPACKED_EXPERTS",
    "SHOWN",
    "VARIANTS",
    "made_model",
    "random_floats",
    "real_models",
    "with_config",
]

CONTAINERS = ("safetensors", "gguf", "npz", "npy", "pth", "gguf-f16", "npz-f32", "pth-bf16")
VARIANTS = (
    *("fp8-block-64x64", "fp8-block-64x64-e5m2", "fp8-block-ct-64x32", "fp8-block-e5m2"),
    *("fp8-tensor-e5m2", "int4-32", "int4-channel", "int4-asym-32", "int4-asym-channel"),
    *("gptq-4bit-32", "gptq-8bit-64", "awq-4bit-32", "mlx-3bit-128", "mlx-4bit-32", "mlx-8bit-32"),
    *("bnb-nf4-128", "bnb-nf4-nested-256", "bnb-fp4-zeros", "bnb-fp4-2048"),
)
OTHER_WORDS = ("w4a16", "nf4", "int4-7", "int4-32-64", "mlx-4bit-48", "nvfp5", "exl3", "q4_k")
# Some fit no weight of a model: what is said then is recorded as well.
OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("safetensors", {"overrides": {"*": "keep"}}),
    ("int4-32", {"overrides": {"*q_proj*": "keep", "*o_proj*": "fp8-channel", "*.mlp*": "f32"}}),
    ("bnb-nf4", {"include": "*proj*", "exclude": ["*down_proj*"], "dtype": "f16"}),
    ("fp8-tensor-ct", {"include": "model.layers.0", "cast_all": True, "loss": False}),
    ("nvfp4", {"rename": {"^model": "m"}, "metadata": {"made": "here"}, "strict": True}),
    ("mlx-4bit", {"max_shard_size": 60_000, "drop": "*norm*", "verify": True}),
    ("gguf", {"split_max_size": 60_000, "metadata": {"general.name": "x", "n": 3}}),
    ("f32", {"allow_unknown": True, "math": "reference", "edit": {"*norm*": np.negative}}),
)
REPACKED = ("llama", "llama f16")  # by every encoding, and these by some
REPACKED_EXPERTS = ("qwen3_moe", "gpt_oss")
OF_EXPERTS = (
    *("fp8-block", "fp8-channel", "int8", "int4", "nvfp4", "nvfp4-modelopt", "mxfp4", "mxfp8"),
    *("mxfp4-modelopt", "mlx-4bit", "mlx-mxfp4", "gptoss-mxfp4", "gptq-4bit", "awq-4bit"),
)
COMMANDS = (
    *("convert --list", "convert --list --json", "forget --list", "help"),
    *(
        f"{verb} --help all"
        for verb in ("parse", "inspect", "remember", "forget", "convert", "plan")
    ),
)
ON_MODELS = (
    *("inspect", "inspect --json", "parse", "parse --json", "plan --to int4", "plan --to gguf"),
    *("plan --to fp8-block --json", "forget --to gptq-4bit -o TO", "forget --to mxfp4 -o TO"),
    *("remember -o TO", "convert --to gguf-q8_0 -o TO", "convert -o TO.gguf --json"),
)
SHOWN = ("ct_w4_g128_sym", "modelopt_nvfp4", "mlx_affine_4bit", "gptoss_*", "exl3", "*_q4_0*")

_ENDINGS = (".safetensors", ".gguf", ".npz", ".npy", ".pth", ".bin")
_WHOLE = ("model", "pytorch_model")  # what a file is called that is a model with its folder
_OUT, _IN, _INNER, _EXPERTS = 128, 128, 256, 2


def real_models(folder: Path) -> Iterator[Path]:
    """Yield the models in a folder and those below it: directories as on the hub, and files."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            is_model = any(one.stem in _WHOLE and one.suffix in _ENDINGS for one in path.iterdir())
            yield from [path] if is_model else real_models(path)
        elif path.suffix in _ENDINGS and ".expected" not in path.name:
            yield path


def with_config(model: Path, folder: Path) -> Path | None:
    """Make a directory of a file whose config lies beside it as NAME.config.json; None without."""
    config = model.with_suffix(".config.json")
    if not config.exists():
        return None
    folder.mkdir()
    shutil.copy(model, folder / "model.safetensors")
    shutil.copy(config, folder / "config.json")
    return folder


Shapes = dict[str, tuple[int, ...]]


def _split(module: str, gate: str, up: str, down: str) -> Shapes:
    each = {gate: (_INNER, _IN), up: (_INNER, _IN), down: (_OUT, _INNER)}
    return {f"{module}.{i}.{x}.weight": each[x] for i in range(_EXPERTS) for x in each}


def _stacked(
    module: str, both: str = "experts.gate_up_proj", down: str = "experts.down_proj"
) -> Shapes:
    return {f"{module}.{both}": (2, 2 * _INNER, _IN), f"{module}.{down}": (2, _OUT, _INNER)}


def _turned(module: str) -> Shapes:
    return {name: (n, cols, rows) for name, (n, rows, cols) in _stacked(module).items()}


_PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
_SPLIT = _split("mlp.experts", *_PROJECTIONS)
_GATE: Shapes = {"mlp.gate.weight": (_EXPERTS, _IN)}
_BIASES = {"mlp.experts.gate_up_proj_bias": (2, 2 * _INNER), "mlp.experts.down_proj_bias": (2, 128)}
_ROUTER: Shapes = {"mlp.router.weight": (_EXPERTS, _IN), "mlp.router.bias": (_EXPERTS,)}
_DENSE: Shapes = {
    **{f"mlp.{name}.weight": (_INNER, _IN) for name in ("gate_proj", "up_proj")},
    "mlp.down_proj.weight": (_OUT, _INNER),
    "mlp.down_proj.bias": (_OUT,),
}
_ODD = {"odd.weight": (72, 100), "thin.weight": (1, 96), "conv.weight": (16, 8, 3, 3)}

# By name: the type of the model, the tensors of its layer beside attention, and whether the head
# is tied to the embedding.
MADE: Mapping[str, tuple[str, Shapes, bool]] = {
    "llama": ("llama", {**_DENSE, **_ODD}, False),
    "llama f16": ("llama", _DENSE, False),
    "qwen2 tied": ("qwen2", _DENSE, True),
    "gpt2": ("gpt2", {"attn.c_attn.weight": (128, 384), "mlp.c_proj.weight": (256, 128)}, True),
    "no type": ("", {**_DENSE, "mlp.gate_proj.weight": (1536, 1024)}, False),  # in several bands
    "mixtral": (
        "mixtral",
        _split("block_sparse_moe.experts", "w1", "w3", "w2")
        | {"block_sparse_moe.gate.weight": (_EXPERTS, _IN)},
        False,
    ),
    "qwen3_moe": ("qwen3_moe", _SPLIT | _GATE, False),
    "deepseek_v3": (
        "deepseek_v3",
        _SPLIT | _GATE | _split("mlp.shared_experts", *_PROJECTIONS),
        False,
    ),
    "gpt_oss": ("gpt_oss", _turned("mlp") | _BIASES | _ROUTER, False),
    "gpt_oss split": ("gpt_oss", _SPLIT | _ROUTER, False),
    "llama4": ("llama4_text", _turned("feed_forward"), False),
    "llama4 split": ("llama4_text", _split("feed_forward.experts", *_PROJECTIONS), False),
    "qwen3_vl_moe": ("qwen3_vl_moe_text", _turned("mlp") | _GATE, False),
    "qwen3_5_moe": ("qwen3_5_moe_text", _stacked("mlp") | _GATE, False),
    "gemma4": ("gemma4_text", _stacked("."), True),
    "granitemoe": (
        "granitemoe",
        _stacked("block_sparse_moe", "input_linear.weight", "output_linear.weight"),
        True,
    ),
}


def made_model(name: str, folder: Path) -> Path:
    """Write a model of `MADE` as a directory."""
    kind, layer, is_tied = MADE[name]
    attention: Shapes = {f"self_attn.{x}_proj.weight": (_OUT, _IN) for x in "qkvo"}
    norms: Shapes = {"self_attn.q_proj.bias": (_OUT,), "input_layernorm.weight": (_IN,)}
    shapes: Shapes = {"model.embed_tokens.weight": (160, _IN)}
    shapes |= {f"model.layers.0.{x}": s for x, s in (attention | norms | layer).items()}
    shapes |= {} if is_tied else {"lm_head.weight": (160, _IN)}
    header, data = dict[str, Any](), b""
    for tensor, shape in shapes.items():
        mixed = {"q": "F16", "v": "F32"}.get(tensor.partition("self_attn.")[2][:1], "BF16")
        dtype = "F16" if name.endswith("f16") else mixed
        raw = random_floats(tensor, shape, dtype).tobytes()
        ends = [len(data), len(data) + len(raw)]
        header[tensor] = {"dtype": dtype, "shape": shape, "data_offsets": ends}
        data += raw
    told = json.dumps(header).encode()
    folder.mkdir(parents=True)
    start = len(told).to_bytes(8, "little")
    (folder / "model.safetensors").write_bytes(start + told + data)
    config = {"model_type": kind, "tie_word_embeddings": is_tied, "num_hidden_layers": 1}
    config |= {"hidden_size": _IN, "num_local_experts": _EXPERTS, "torch_dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(config if kind else {}))
    (folder / "tokenizer.json").write_text("{}")
    return folder


FLOATS: Mapping[str, Any] = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}


def random_floats(seed: str, shape: tuple[int, ...], dtype: str = "F32") -> NDArray[Any]:
    """Return values as weights have them: some are large, and some are zero with a sign."""
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    values = rng.normal(0, 0.02, shape) * np.where(rng.random(shape) < 0.01, 20, 1)
    values.reshape(-1)[-64:-16] = -0.0
    return values.astype(FLOATS[dtype])
