"""Small GGUF models, whole: names and keys as of real ones, bytes that anyone can make again.

Values come from whole numbers of a counter's hash, so that no library's version changes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from helpers import gguf_handmade as handmade

F32, F16, Q8_0, BF16 = 0, 1, 8, 30
Floats = npt.NDArray[np.float32]
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Model:
    """What a model is made of; shapes are outermost first.

    Attributes
    ----------
    arch : str
    keys : dict of str to value
        Behind `arch.`.
    shapes : dict of str to tuple of int
        In the order of the file, which is not that of the output.
    dtype : int
        Of its matrices.
    """

    arch: str
    keys: Mapping[str, handmade.Value]
    shapes: Shapes
    dtype: int = F16
    more: Mapping[str, handmade.Value] = field(default_factory=dict)


def u32(value: int) -> handmade.Value:
    return handmade.U32, value


def f32(value: float) -> handmade.Value:
    return handmade.F32, value


def _keys(
    n_layers: int, n_embd: int, n_heads: int, n_kv_heads: int, **more: handmade.Value
) -> dict[str, handmade.Value]:
    return {
        "context_length": u32(2048),
        "embedding_length": u32(n_embd),
        "block_count": u32(n_layers),
        "attention.head_count": u32(n_heads),
        "attention.head_count_kv": u32(n_kv_heads),
        "attention.layer_norm_rms_epsilon": f32(1e-6),
        "attention.layer_norm_epsilon": f32(1e-6),
        **{name.replace("__", "."): value for name, value in more.items()},
    }


def _layers(n: int, shapes: Shapes) -> Shapes:
    return {f"blk.{i}.{name}": shape for i in range(n) for name, shape in shapes.items()}


def _attention(n_embd: int, n_q: int, n_kv: int) -> Shapes:
    return {
        "attn_norm.weight": (n_embd,),
        "attn_q.weight": (n_q, n_embd),
        "attn_k.weight": (n_kv, n_embd),
        "attn_v.weight": (n_kv, n_embd),
        "attn_output.weight": (n_embd, n_q),
        "ffn_norm.weight": (n_embd,),
    }


def _feed_forward(n_embd: int, n_ff: int) -> Shapes:
    return {
        "ffn_gate.weight": (n_ff, n_embd),
        "ffn_up.weight": (n_ff, n_embd),
        "ffn_down.weight": (n_embd, n_ff),
    }


def _experts(n_embd: int, n_ff: int, n_experts: int) -> Shapes:
    return {
        "ffn_gate_inp.weight": (n_experts, n_embd),
        "ffn_gate_exps.weight": (n_experts, n_ff, n_embd),
        "ffn_up_exps.weight": (n_experts, n_ff, n_embd),
        "ffn_down_exps.weight": (n_experts, n_embd, n_ff),
    }


def _ends(n_vocab: int, n_embd: int, *, tied: bool = False) -> Shapes:
    ends = {"token_embd.weight": (n_vocab, n_embd), "output_norm.weight": (n_embd,)}
    return ends if tied else {"output.weight": (n_vocab, n_embd), **ends}


def _llama() -> Model:
    layer = {**_attention(256, 256, 64), **_feed_forward(256, 256)}
    keys = _keys(8, 256, 4, 1, rope__dimension_count=u32(64), feed_forward_length=u32(256))
    return Model("llama", keys, {**_layers(8, layer), **_ends(48, 256)})


def _qwen2() -> Model:
    biases = {f"attn_{name}.bias": (n,) for name, n in (("q", 256), ("k", 128), ("v", 128))}
    layer = {**_attention(256, 256, 128), **biases, **_feed_forward(256, 512)}
    keys = _keys(4, 256, 4, 2, rope__freq_base=f32(1e6))
    return Model("qwen2", keys, {**_ends(64, 256, tied=True), **_layers(4, layer)}, BF16)


def _ragged() -> Model:
    """Return a model whose rows are not blocks of 256, and some not of 32."""
    norms = {"attn_q_norm.weight": (64,), "attn_k_norm.weight": (64,)}
    layer = {**_attention(320, 256, 128), **norms, **_feed_forward(320, 296)}
    keys = _keys(4, 320, 4, 2, attention__key_length=u32(64), attention__value_length=u32(64))
    return Model("qwen3", keys, {**_ends(40, 320), **_layers(4, layer)}, BF16)


def _gemma() -> Model:
    norms = {"post_attention_norm.weight": (256,), "post_ffw_norm.weight": (256,)}
    layer = {**_attention(256, 512, 256), **norms, **_feed_forward(256, 768)}
    keys = _keys(3, 256, 2, 1, attention__key_length=u32(256), attention__value_length=u32(256))
    keys["attention.sliding_window"] = u32(512)
    return Model("gemma3", keys, {**_ends(96, 256, tied=True), **_layers(3, layer)}, F32)


def _moe() -> Model:
    layer = {**_attention(256, 256, 64), **_experts(256, 256, 4)}
    keys = _keys(3, 256, 4, 1, expert_count=u32(4), expert_used_count=u32(2))
    return Model("qwen3moe", keys, {**_layers(3, layer), **_ends(40, 256)}, BF16)


def _mixtral() -> Model:
    layer = {**_attention(256, 256, 64), **_experts(256, 256, 8)}
    keys = _keys(2, 256, 4, 1, expert_count=u32(8), expert_used_count=u32(2))
    return Model("llama", keys, {**_layers(2, layer), **_ends(40, 256)})


def _falcon() -> Model:
    layer = {
        "attn_norm.weight": (256,),
        "attn_norm.bias": (256,),
        "attn_qkv.weight": (384, 256),
        "attn_output.weight": (256, 256),
        "ffn_up.weight": (256, 256),
        "ffn_down.weight": (256, 256),
    }
    keys = _keys(17, 256, 4, 1)
    return Model("falcon", keys, {**_layers(17, layer), **_ends(40, 256)}, F32)


def _blocks() -> Model:
    """Return a model that is quantised already."""
    model = _qwen2()
    return Model(model.arch, model.keys, model.shapes, Q8_0, {"general.file_type": u32(7)})


MODELS: dict[str, Callable[[], Model]] = {
    "llama": _llama,
    "qwen2": _qwen2,
    "ragged": _ragged,
    "gemma": _gemma,
    "moe": _moe,
    "mixtral": _mixtral,
    "falcon": _falcon,
    "blocks": _blocks,
}


# --- their bytes ----------------------------------------------------------------------------------


def splitmix(seed: int, n: int) -> npt.NDArray[np.uint64]:
    """Return `n` words of splitmix64."""
    with np.errstate(over="ignore"):
        x = np.arange(1, n + 1, dtype=np.uint64) + np.uint64(seed) * np.uint64(1 << 32)
        x *= np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def values(seed: int, shape: tuple[int, ...]) -> Floats:
    """Return numbers as weights have them: a bell, some larger ones, and a row of zeros."""
    n = int(np.prod(shape))
    words = splitmix(seed, n).view(np.uint16).reshape(n, 4)
    bell = (words.astype(np.int32).sum(axis=1) - 2 * 65535).astype(np.float32) * 2.0**-20
    bell[(words[:, 0] & 1023) == 7] *= 16
    rows = bell.reshape(-1, shape[-1])
    if len(rows) > 8:
        rows[5] = 0
    return rows.reshape(shape)


def _as_stored(found: Floats, dtype: int) -> bytes:
    if dtype == F32:
        return found.tobytes()
    if dtype == F16:
        return found.astype(np.float16).tobytes()
    if dtype == BF16:
        return (found.view(np.uint32) >> np.uint32(16)).astype(np.uint16).tobytes()
    blocks = found.reshape(-1, 32)
    codes = np.clip(np.rint(blocks * 256), -127, 127).astype(np.int8)
    scales = np.full((len(blocks), 1), 2**-8, np.float16)
    scales[::3] = 0.0123
    return np.concatenate((scales.view(np.int8), codes), axis=1).tobytes()


def _keys_of(model: Model) -> Iterator[tuple[str, handmade.Value]]:
    tokens = [f"token {i}" for i in range(24)] + ["é\u2028", ""]
    yield "general.architecture", (handmade.STRING, model.arch)
    yield "general.name", (handmade.STRING, "made of whole numbers")
    yield from model.more.items()
    yield from ((f"{model.arch}.{key}", value) for key, value in model.keys.items())
    yield "tokenizer.ggml.model", (handmade.STRING, "gpt2")
    yield "tokenizer.ggml.tokens", handmade.Array(handmade.STRING, tokens)
    yield "tokenizer.ggml.scores", handmade.Array(handmade.F32, [0.5] * len(tokens))
    yield "tokenizer.ggml.add_bos_token", (handmade.BOOL, True)
    yield "general.quantization_version", u32(1)
    yield "general.tags", handmade.Array(handmade.STRING, ["small"])


def gguf_bytes(name: str) -> bytes:
    """Return one of `MODELS`, whole."""
    model = MODELS[name]()
    tensors = {}
    for i, (tensor, shape) in enumerate(model.shapes.items()):
        dtype = model.dtype if len(shape) > 1 else F32
        found = values(100 * list(MODELS).index(name) + i, shape)
        if name == "blocks" and "gate" in tensor:
            dtype = F16  # of another dtype than the rest
        tensors[tensor] = handmade.Tensor(shape[::-1], dtype, _as_stored(found, dtype))
    return _padded(handmade.gguf_bytes(list(_keys_of(model)), tensors))


def _padded(raw: bytes) -> bytes:
    """Return a file with its last tensor padded, without which llama.cpp reads no imatrix."""
    return raw + bytes(-len(raw) % 32)


# --- importance -----------------------------------------------------------------------------------


def importance(name: str) -> dict[str, tuple[Floats, Floats]]:
    """Return sums of squares and counts for a model's matrices; of stacks, by expert.

    The first expert of the second layer is never used; one entry is of no tensor.
    """
    found: dict[str, tuple[Floats, Floats]] = {}
    shapes = {**MODELS[name]().shapes, "blk.99.none.weight": (2, 64)}
    for i, (tensor, shape) in enumerate(shapes.items()):
        if len(shape) < 2 or "embd" in tensor or "_inp" in tensor:
            continue
        n = shape[0] if len(shape) > 2 else 1
        counts = (splitmix(7_000 + i, n) % np.uint64(50)).astype(np.float32)[:, None] + 1
        sums = np.abs(values(9_000 + i, (n, shape[-1]))) * counts
        sums[:, 3::17] *= 64
        if n > 1 and tensor.startswith("blk.1."):
            counts[0] = 0
            sums[0] = 0
        found[tensor] = sums, counts
    return found


def imatrix_gguf(name: str) -> bytes:
    """Return the importance of a model's columns as llama-imatrix writes it."""
    keys: dict[str, Any] = {
        "general.type": (handmade.STRING, "imatrix"),
        "imatrix.datasets": handmade.Array(handmade.STRING, ["wiki.train.raw", "more.txt"]),
        "imatrix.chunk_count": u32(12),
        "imatrix.chunk_size": u32(512),
    }
    tensors = {}
    for tensor, (sums, counts) in sorted(importance(name).items()):
        tensors[f"{tensor}.in_sum2"] = handmade.Tensor(sums.shape[::-1], F32, sums.tobytes())
        tensors[f"{tensor}.counts"] = handmade.Tensor(counts.shape[::-1], F32, counts.tobytes())
    return _padded(handmade.gguf_bytes(keys, tensors))


def imatrix_dat(name: str) -> bytes:
    """Return the same as it was written before 2025: one count for each matrix, or stack."""
    entries = importance(name)
    out = np.int32(len(entries)).tobytes()
    for tensor, (sums, counts) in entries.items():
        calls = np.int32(0 if tensor.endswith("0.attn_q.weight") else counts.max())
        raw = tensor.encode()
        out += np.int32(len(raw)).tobytes() + raw
        out += calls.tobytes() + np.int32(sums.size).tobytes() + sums.tobytes()
    dataset = b"wiki.train.raw"
    return out + np.int32(12).tobytes() + np.int32(len(dataset)).tobytes() + dataset


# --- what llama-quantize is asked for -------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """One call of the tool.

    Attributes
    ----------
    model : str
        One of `MODELS`.
    mix : str
    options : tuple of str
        As its command line has them.
    imatrix : str
        The ending of the file, `gguf` or `dat`; empty for none.
    """

    model: str
    mix: str
    options: tuple[str, ...] = ()
    imatrix: str = ""

    @property
    def id(self) -> str:
        """What it is recorded as."""
        imatrix = f"imatrix.{self.imatrix}" if self.imatrix else ""
        return " ".join(filter(None, (self.model, self.mix, imatrix, *self.options)))


RUNS = (
    Run("llama", "q4_k_m"),
    Run("llama", "q4_k_m", (), "gguf"),
    Run("llama", "q4_k_m", ("--pure",)),
    Run("llama", "q2_k_s", (), "dat"),
    Run("llama", "q2_k"),
    Run("llama", "q3_k_l"),
    Run("llama", "iq2_xs", (), "gguf"),
    Run("llama", "iq1_m", (), "gguf"),
    Run("llama", "iq3_xxs", (), "dat"),
    Run("llama", "tq2_0"),
    Run("llama", "q1_0"),
    Run("llama", "q4_k_s", ("--prune-layers", "1,6"), "gguf"),
    Run(
        "llama", "q5_0", ("--output-tensor-type", "q8_0", "--token-embedding-type", "q6_k"), "gguf"
    ),
    Run("llama", "iq4_xs", ("--leave-output-tensor",), "gguf"),
    Run("qwen2", "q5_k_m"),
    Run("qwen2", "q6_k"),
    Run("qwen2", "q4_0", (), "gguf"),
    Run("qwen2", "q5_1", (), "dat"),
    Run("qwen2", "q5_1", ("--tensor-type", r"blk\.1\.=bf16")),
    Run("qwen2", "f16"),
    Run("qwen2", "q2_0"),
    Run("ragged", "q4_k_m"),
    Run("ragged", "iq4_nl", (), "gguf"),
    Run("ragged", "q2_k"),
    Run("ragged", "q8_0"),
    Run("gemma", "q8_0"),
    Run("gemma", "q4_1", ("--tensor-type", r"blk\.1\.=q6_k", "--tensor-type", "attn_v=nvfp4")),
    Run("gemma", "bf16"),
    Run(
        "gemma",
        "q3_k_m",
        ("--override-kv", "gemma3.block_count=int:40", "--override-kv", "general.name=str:new"),
    ),
    Run("moe", "mxfp4_moe"),
    Run("moe", "q4_k_m", (), "gguf"),
    Run("moe", "iq2_s", (), "gguf"),
    Run("mixtral", "q3_k_m", (), "dat"),
    Run("mixtral", "iq3_s"),
    Run("falcon", "q4_k_m"),
    Run("blocks", "copy"),
    Run("blocks", "iq4_xs", ("--allow-requantize",)),
    Run("blocks", "q8_0", ("--allow-requantize",)),
)

IN_PARTS = Run("llama", "q4_k_m", ("--keep-split",))  # of a model in parts of `PART_BYTES`
PART_BYTES = 2_000_000


def make(run: Run, folder: Path) -> list[str]:
    """Make the files that a run reads in a folder, and return its command line within that.

    Without the program, the output and the number of threads.
    """
    (folder / "model.gguf").write_bytes(gguf_bytes(run.model))
    options = list(run.options)
    if run.imatrix:
        made = imatrix_gguf(run.model) if run.imatrix == "gguf" else imatrix_dat(run.model)
        (folder / f"imatrix.{run.imatrix}").write_bytes(made)
        options += ["--imatrix", f"imatrix.{run.imatrix}"]
    return [*options, "model.gguf"]
