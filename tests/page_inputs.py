"""The files that the pages of the documentation speak of, small and the same on every machine."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from gguf_handmade import F32, STRING, U32, Array, Tensor, gguf_bytes
from handmade import Entry, write_index, write_safetensors

__all__ = ["FP8_DIRECTORY", "GGUF", "MIXED", "UPLOADS", "make_inputs"]

FP8_DIRECTORY = "Qwen3-tiny-FP8"
GGUF = "llama-tiny-Q4_K_M.gguf"
UPLOADS = "uploads"
MIXED = "mixed"

SEEDS = Path(__file__).parents[1] / "fuzz" / "corpus"
GGML_F32, GGML_Q8_0, GGML_Q4_K, GGML_Q6_K = 0, 8, 12, 14


def make_inputs(folder: Path) -> None:
    """Run `amn demo` in a folder, and add what else the pages need."""
    demo = [sys.executable, "-m", "anamnesis", "demo", str(folder)]
    subprocess.run(demo, check=True, stdout=subprocess.DEVNULL)
    _fp8_directory(folder)
    _gguf(folder)
    _uploads(folder)
    _mixed(folder)
    _mxfp4(folder)


def _fp8_directory(folder: Path) -> None:
    """Cut the demo's file into two shards, a scale apart from its weight, and add the rest."""
    tensors = _read_safetensors(folder / "model-fp8.safetensors")
    home = folder / FP8_DIRECTORY
    shards: tuple[dict[str, Entry], ...] = ({}, {})
    for n, (name, entry) in enumerate(tensors.items()):
        shards[n % 2][name] = entry
    weight_map: dict[str, str] = {}
    for n, shard in enumerate(shards):
        name = f"model-{n + 1:05}-of-{len(shards):05}.safetensors"
        write_safetensors(home / name, shard, {"format": "pt"})
        weight_map |= dict.fromkeys(shard, name)
    write_index(home, weight_map)
    blocks = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    others = [name.rpartition(".")[0] for name in tensors if name.endswith(".weight_scale")]
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "quantization_config": {**blocks, "modules_to_not_convert": others},
    }
    (home / "config.json").write_text(json.dumps(config, indent=2))
    (home / "tokenizer.json").write_text("{}")


def _read_safetensors(path: Path) -> dict[str, Entry]:
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    header.pop("__metadata__", None)
    return {
        name: (told["dtype"], told["shape"], raw[start + begin : start + end])
        for name, told in header.items()
        for begin, end in [told["data_offsets"]]
    }


def _gguf(folder: Path) -> None:
    """Write a GGUF of random codes, whose scales are a half float of 0.001."""
    rng = np.random.default_rng(0)
    scale = np.float16(1e-3).tobytes()

    def q4_k(rows: int, columns: int) -> Tensor:
        blocks = rng.integers(0, 256, (rows * columns // 256, 144), dtype=np.uint8)
        blocks[:, :4] = np.frombuffer(scale * 2, np.uint8)
        return Tensor((columns, rows), GGML_Q4_K, blocks.tobytes())

    def q6_k(rows: int, columns: int) -> Tensor:
        blocks = rng.integers(0, 256, (rows * columns // 256, 210), dtype=np.uint8)
        blocks[:, 208:] = np.frombuffer(scale, np.uint8)
        return Tensor((columns, rows), GGML_Q6_K, blocks.tobytes())

    keys = {
        "general.architecture": (STRING, "llama"),
        "general.name": (STRING, "tiny"),
        "llama.block_count": (U32, 1),
        "llama.attention.layer_norm_rms_epsilon": (F32, 1e-5),
        "tokenizer.ggml.tokens": Array(STRING, ["<s>", "</s>", "a", "b"]),
    }
    tensors = {
        "token_embd.weight": q6_k(64, 256),
        "blk.0.attn_norm.weight": Tensor((256,), GGML_F32, np.ones(256, "<f4").tobytes()),
        "blk.0.attn_q.weight": q4_k(256, 256),
        "blk.0.ffn_down.weight": q6_k(256, 512),
        "blk.0.ffn_up.weight": q4_k(512, 256),
    }
    (folder / GGUF).write_bytes(gguf_bytes(keys, tensors))


def _mixed(folder: Path) -> None:
    """Write thirty small files of several formats, one of which was cut short."""
    home = folder / MIXED
    weight: Entry = ("F8_E4M3", (16, 16), bytes(range(16)) * 16)
    scale: Entry = ("F32", (16, 1), np.full(16, 0.5, "<f4").tobytes())
    plain: Entry = ("BF16", (16,), bytes(32))
    for n in range(1, 15):
        fp8 = {"up.weight": weight, "up.weight_scale": scale, "norm.weight": plain}
        write_safetensors(home / f"lora-{n:02}-fp8.safetensors", fp8)
    for n in range(15, 23):
        block = Tensor((32,), GGML_Q8_0, bytes(34))
        (home / f"lora-{n}-Q8_0.gguf").write_bytes(gguf_bytes({}, {"up.weight": block}))
    for n in range(23, 28):
        np.savez(home / f"lora-{n}.npz", up=np.ones((4, 4), np.float32))
    for n in range(28, 30):
        write_safetensors(home / f"lora-{n}.safetensors", {"norm.weight": plain})
    whole = (home / "lora-01-fp8.safetensors").read_bytes()
    (home / "lora-30-fp8.safetensors").write_bytes(whole[:-100])


def _mxfp4(folder: Path) -> None:
    """Write 4-bit floats as compressed-tensors has them."""
    rng = np.random.default_rng(0)
    tensors: dict[str, Entry] = {
        "model.norm.weight": ("F32", (256,), np.ones(256, "<f4").tobytes())
    }
    for name in ("gate_proj", "up_proj"):
        module = f"model.layers.0.mlp.{name}"
        tensors[f"{module}.weight_packed"] = ("U8", (64, 128), rng.bytes(64 * 128))
        tensors[f"{module}.weight_scale"] = ("U8", (64, 8), bytes([120]) * 512)
    write_safetensors(folder / "tiny-mxfp4.safetensors", tensors)


def _uploads(folder: Path) -> None:
    home = folder / UPLOADS
    home.mkdir()
    shutil.copy(SEEDS / "fuzz_pth" / "state_dict", home / "weights.pth")
    (home / "settings.pkl").write_bytes(pickle.dumps({"lr": 1e-4}, 2))
    (home / "attack.pkl").write_bytes(b'cos\nsystem\n(S"echo pwned"\ntR.')
    shutil.copy(folder / "model-fp8.safetensors", home / "model.safetensors")
    whole = (home / "model.safetensors").read_bytes()
    (home / "cut.safetensors").write_bytes(whole[: len(whole) // 2])
