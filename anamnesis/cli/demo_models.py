"""Small models of many kinds, equal on every machine, for demos and the docs.

Each maker returns the files of one demo by their path below the folder that it is made in.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zipfile import ZipFile, ZipInfo
from zlib import crc32

from anamnesis.base.dtypes import BLOCK_DTYPES, DTYPES
from anamnesis.base.lazy import np
from anamnesis.base.plain_json import json_table
from anamnesis.base.shard_names import numbered_names
from anamnesis.base.stored import Part

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from anamnesis.formats.base import Writer

    Array = NDArray[Any]

_TABLE: Mapping[str, Any] = json_table(__file__)
_SPECIAL = ("<unk>", "<s>", "</s>")
_MERGES: Sequence[str] = _TABLE["merges"]  # Ġ is how byte-level vocabularies write a space
_LLAMA_CONFIG: Mapping[str, Any] = _TABLE["config"]
VOCABULARY = len(_SPECIAL) + 256 + len(_MERGES)


def byte_level_tokenizer() -> dict[str, Any]:
    """Return a tokenizer of every byte and some pairs, which splits texts as GPT-2's does."""
    from anamnesis.architectures.tokenizers.decoded import byte_alphabet

    tokens = [*_SPECIAL, *byte_alphabet(), *(pair.replace(" ", "") for pair in _MERGES)]
    places = ("single_word", "lstrip", "rstrip", "normalized")
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": token, **dict.fromkeys(places, False), "special": True}
            for i, token in enumerate(_SPECIAL)
        ],
        "pre_tokenizer": bytes_,
        "decoder": bytes_,
        "model": {
            "type": "BPE",
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": list(_MERGES),
        },
    }


Files = dict[str, bytes]


class Demo(NamedTuple):
    """What `amn demo NAME` makes, and how."""

    path: str
    what: str
    maker: Callable[[str], Files]  # of the path

    def make(self) -> Files:
        """Return the files by their path below the folder that the demo is made in."""
        return self.maker(self.path)


class _Stored(NamedTuple):
    """A tensor as it is stored."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


# --- values -------------------------------------------------------------------------------------

HIDDEN, MLP, LAYERS, _HEAD, _QUERIES, _KEYS = (
    _LLAMA_CONFIG[name]
    for name in (
        *("hidden_size", "intermediate_size", "num_hidden_layers"),
        *("head_dim", "num_attention_heads", "num_key_value_heads"),
    )
)


def _generator(name: str) -> np.random.Generator:
    """Return a demo's own random numbers, so that no demo depends on another."""
    return np.random.default_rng(crc32(name.encode()))


def _plain(array: Array, dtype: str) -> _Stored:
    return _Stored(dtype, array.shape, array.astype(DTYPES[dtype].numpy()).tobytes())


def _llama() -> dict[str, _Stored]:
    """Return the weights of a Llama that transformers loads."""
    rng = _generator("llama")
    widths = {
        "self_attn.q_proj": (_QUERIES * _HEAD, HIDDEN),
        "self_attn.k_proj": (_KEYS * _HEAD, HIDDEN),
        "self_attn.v_proj": (_KEYS * _HEAD, HIDDEN),
        "self_attn.o_proj": (HIDDEN, _QUERIES * _HEAD),
        "mlp.gate_proj": (MLP, HIDDEN),
        "mlp.up_proj": (MLP, HIDDEN),
        "mlp.down_proj": (HIDDEN, MLP),
    }
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens": (VOCABULARY, HIDDEN)}
    for layer in range(LAYERS):
        start = f"model.layers.{layer}"
        shapes |= {f"{start}.{name}": shape for name, shape in widths.items()}
        shapes |= {f"{start}.input_layernorm": (HIDDEN,)}
        shapes |= {f"{start}.post_attention_layernorm": (HIDDEN,)}
    shapes |= {"model.norm": (HIDDEN,), "lm_head": (VOCABULARY, HIDDEN)}
    tensors = {}
    for name, shape in shapes.items():
        spread = 0.02 * np.exp(rng.normal(0.0, 0.25, (shape[0], 1)))
        values = rng.normal(1.0, 0.1, shape) if len(shape) == 1 else rng.normal(size=shape) * spread
        tensors[f"{name}.weight"] = _plain(values.astype(np.float32), "BF16")
    return tensors


# --- files --------------------------------------------------------------------------------------


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()


def _file(
    writer: Writer, tensors: Mapping[str, _Stored], metadata: Mapping[str, Any] | None = None
) -> bytes:
    """Return a whole file, in memory."""
    dtypes = DTYPES | BLOCK_DTYPES
    parts = [Part(name, dtypes[t.dtype], t.shape) for name, t in tensors.items()]
    layout = writer.lay_out(parts, metadata or {})
    raw = bytearray(layout.n_bytes)
    begins = zip(layout.offsets, (t.data for t in tensors.values()), strict=True)
    sums = [crc32(t.data) for t in tensors.values()]
    for offset, piece in (*layout.fixed, *begins, *writer.finish(sums)):
        raw[offset : offset + len(piece)] = piece
    return bytes(raw)


def _safetensors(
    tensors: Mapping[str, _Stored], metadata: Mapping[str, str] | None = None
) -> bytes:
    from anamnesis.formats.safetensors.write import SafetensorsWriter

    return _file(SafetensorsWriter(), tensors, metadata)


def _llama_as(to: str, out: str) -> Files:
    """Return what the Llama's directory becomes: a file, or the files of a directory."""
    import anamnesis as an

    with tempfile.TemporaryDirectory() as made:
        source, path = Path(made, "llama-tiny"), Path(made, out)
        source.mkdir()
        for name, raw in _llama_files().items():
            Path(source, name).write_bytes(raw)
        an.convert(source, path, to, threads=1)
        if path.is_file():
            return {out: path.read_bytes()}
        return _below(out, {one.name: one.read_bytes() for one in sorted(path.iterdir())})


def _below(folder: str, files: Files) -> Files:
    return {f"{folder}/{name}": raw for name, raw in files.items()}


# --- the demos ----------------------------------------------------------------------------------


def _llama_files() -> Files:
    return {
        "model.safetensors": _safetensors(_llama(), {"format": "pt"}),
        "tokenizer.json": _json(byte_level_tokenizer()),
        "config.json": _json(_LLAMA_CONFIG),
    }


def _fp8_directory(folder: str) -> Files:
    """Cut the checkpoint of `amn demo` into two shards, a scale apart from its weight."""
    from anamnesis.cli.demo_run import MLP, checkpoint, original_weights, stored_dtype

    shards: tuple[dict[str, _Stored], ...] = ({}, {})
    for n, (name, array) in enumerate(checkpoint(original_weights()).items()):
        shards[n % 2][name] = _Stored(stored_dtype(array), array.shape, array.tobytes())
    names = numbered_names("model", len(shards), ".safetensors")
    weight_map = {w: name for name, shard in zip(names, shards, strict=True) for w in shard}
    size = sum(len(t.data) for shard in shards for t in shard.values())
    config = {
        **_LLAMA_CONFIG,
        "intermediate_size": MLP,
        "num_hidden_layers": 1,
        "tie_word_embeddings": True,
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    }
    files = {
        **{n: _safetensors(s, {"format": "pt"}) for n, s in zip(names, shards, strict=True)},
        "model.safetensors.index.json": _json(
            {"metadata": {"total_size": size}, "weight_map": weight_map}
        ),
        "config.json": _json(config),
        "tokenizer.json": _json(byte_level_tokenizer()),
    }
    return _below(folder, files)


def _mxfp4(path: str) -> Files:
    """Return 4-bit floats as compressed-tensors stores them."""
    rng = _generator("mxfp4")
    tensors = {"model.norm.weight": _plain(np.ones(256), "F32")}
    for name in ("gate_proj", "up_proj"):
        module = f"model.layers.0.mlp.{name}"
        tensors[f"{module}.weight_packed"] = _Stored("U8", (64, 128), rng.bytes(64 * 128))
        tensors[f"{module}.weight_scale"] = _Stored("U8", (64, 8), bytes([120]) * 512)
    return {path: _safetensors(tensors)}


def _mixed(folder: str) -> Files:
    """Return thirty small files of several formats; the last one is truncated."""
    from anamnesis.formats.gguf.write import GgufWriter
    from anamnesis.formats.numpy.write import NpzWriter

    plain = _plain(np.zeros(16), "BF16")
    fp8 = {
        "up.weight": _Stored("F8_E4M3", (16, 16), bytes(range(16)) * 16),
        "up.weight_scale": _plain(np.full((16, 1), 0.5), "F32"),
        "norm.weight": plain,
    }
    whole = _safetensors(fp8)
    files = {f"lora-{n:02}-fp8.safetensors": whole for n in range(1, 15)}
    block = {"up.weight": _Stored("Q8_0", (32,), bytes(34))}
    files |= {f"lora-{n}-Q8_0.gguf": _file(GgufWriter(), block) for n in range(15, 23)}
    array = {"up": _plain(np.ones((4, 4)), "F32")}
    files |= {f"lora-{n}.npz": _file(NpzWriter(), array) for n in range(23, 28)}
    bare = _safetensors({"norm.weight": plain})
    files |= {f"lora-{n}.safetensors": bare for n in range(28, 30)}
    return _below(folder, files | {"lora-30-fp8.safetensors": whole[:-100]})


def _uploads(folder: str) -> Files:
    """Return files that strangers may send: models, settings, an attack, a truncated file."""
    import pickle

    from anamnesis.formats.torch.write import TorchWriter

    weights = {
        "up.weight": _plain(np.ones((4, 4)), "F32"),
        "up.bias": _plain(np.zeros(4), "F32"),
    }
    whole = _safetensors(_llama())
    files = {
        "weights.pth": _file(TorchWriter(), weights),
        "settings.pkl": pickle.dumps({"lr": 1e-4}, 2),
        "attack.pkl": b'cos\nsystem\n(S"echo pwned"\ntR.',
        "model.safetensors": whole,
        "cut.safetensors": whole[: len(whole) // 2],
    }
    return _below(folder, files)


def _ckpt(path: str) -> Files:
    """Return a training checkpoint: weights, their averages, and the optimizer's state."""
    rng = _generator("ckpt")
    block = "diffusion_model.input_blocks.1.1.transformer_blocks.0.attn1.to_q"
    shapes = {f"{block}.weight": (32, 32), "diffusion_model.out.2.bias": (4,)}
    weights = {
        f"model.{name}": rng.normal(size=shape).astype("<f4") for name, shape in shapes.items()
    }
    averages = {  # as LitEma calls them: without dots
        f"model_ema.{name.replace('.', '')}": rng.normal(size=shape).astype("<f4")
        for name, shape in shapes.items()
    }
    optimizer = {"exp_avg": np.zeros((32, 32), "<f4")}
    pickle = _NestedPickle()
    raw = pickle.of({"state_dict": weights | averages, "optimizer": optimizer, "global_step": 875})
    out = io.BytesIO()
    with ZipFile(out, "w") as archive:
        members = {"data.pkl": raw, "byteorder": b"little"}
        members |= {f"data/{n}": data for n, data in enumerate(pickle.storages)}
        for name, data in (members | {"version": b"3\n"}).items():
            archive.writestr(ZipInfo(f"sd-tiny/{name}", (1980, 1, 1, 0, 0, 0)), data)
    return {path: out.getvalue()}


class _NestedPickle:
    """Dictionaries of arrays and numbers as torch.save pickles them, without torch."""

    def __init__(self) -> None:
        self.storages: list[bytes] = []

    def of(self, value: Mapping[str, Any]) -> bytes:
        """Return a pickle of protocol 2."""
        return b"\x80\2" + self._value(value) + b"."

    def _value(self, value: Any) -> bytes:
        if isinstance(value, bytes):  # a pickle already
            return value
        if isinstance(value, Mapping):
            items = b"".join(self._value(k) + self._value(v) for k, v in value.items())
            return b"}(" + items + b"u"
        if isinstance(value, tuple):
            return b"(" + b"".join(map(self._value, value)) + b"t"
        if isinstance(value, str):
            return b"X" + len(value.encode()).to_bytes(4, "little") + value.encode()
        if isinstance(value, int):
            return b"J" + value.to_bytes(4, "little")
        return self._tensor(value)

    def _tensor(self, array: Array) -> bytes:
        key = str(len(self.storages))
        self.storages.append(array.tobytes())
        storage = ("storage", b"ctorch\nFloatStorage\n", key, "cpu", array.size)
        strides = tuple(n // 4 for n in array.strides)
        hooks = b"ccollections\nOrderedDict\n)R"
        given = (self._value(storage) + b"Q", 0, array.shape, strides, b"\x89", hooks)
        return b"ctorch._utils\n_rebuild_tensor_v2\n" + self._value(given) + b"R"


DEMOS: Mapping[str, Demo] = {
    "llama": Demo(
        "llama-tiny",
        "a Llama in BF16, as on the Hugging Face hub",
        lambda folder: _below(folder, _llama_files()),
    ),
    "fp8-directory": Demo("llama-tiny-FP8", "a Llama in FP8, in two shards", _fp8_directory),
    "gptq": Demo("llama-tiny-GPTQ", "the Llama in GPTQ", partial(_llama_as, "gptq-4bit")),
    "awq": Demo("llama-tiny-AWQ", "the Llama in AWQ", partial(_llama_as, "awq-4bit")),
    "bnb": Demo(
        "llama-tiny-bnb-4bit", "the Llama in bitsandbytes' NF4", partial(_llama_as, "bnb-nf4")
    ),
    "gguf": Demo(
        "llama-tiny-Q4_K_M.gguf", "the Llama as a GGUF in Q4_K_M", partial(_llama_as, "gguf-q4_k_m")
    ),
    "mxfp4": Demo("tiny-mxfp4.safetensors", "MXFP4 of compressed-tensors", _mxfp4),
    "ckpt": Demo("sd-tiny.ckpt", "a training checkpoint: weights, averages, optimizer", _ckpt),
    "mixed": Demo("mixed", "thirty small files of several formats, one cut short", _mixed),
    "uploads": Demo("uploads", "files from strangers, one of them an attack", _uploads),
}
