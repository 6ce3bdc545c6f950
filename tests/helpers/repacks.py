"""One weight in the codes of each kind, as every producer stores them, and what it is moved to."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import anamnesis as an
from helpers.handmade import Entry, safetensors_bytes, write_safetensors

Array = NDArray[Any]
RNG = np.random.default_rng(16)
DTYPES = {"F8_E4M3": "u1", "F16": "f2", "U8": "u1", "I8": "i1", "I32": "i4", "U32": "u4"}


def entry(dtype: str, array: Any) -> Entry:
    array = np.asarray(array)
    return dtype, array.shape, array.tobytes()


def raw(*shape: int) -> Array:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def e4m3(*shape: int) -> Array:
    """Scales of every magnitude, none a NaN."""
    return RNG.integers(1, 127, shape, dtype=np.uint8)


def f16(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float16)


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


def folder(path: Path, tensors: dict[str, Entry], **config: Any) -> Path:
    """A directory whose config settles what shapes leave open."""
    write_safetensors(path / "model.safetensors", tensors)
    (path / "config.json").write_text(json.dumps(config))
    return path


def stored(model: an.Model) -> dict[str, tuple[str, list[int], bytes]]:
    return {t.name: (t.dtype.name, list(t.shape), t.read()) for t in model.stored.values()}


def repacked(tensors: dict[str, Entry], target: str, **options: Any) -> an.Model:
    """The tensors of what a file is repacked as."""
    out = io.BytesIO()
    with an.parse(safetensors_bytes(tensors)) as model:
        report = model.convert(out, target, **options)
        assert report.repacked
        assert report.n_encoded == 0
        assert not report.loss or not report.loss.weights
    return an.parse(out.getvalue())


def check(tensors: dict[str, Entry], target: str, want: dict[str, Entry]) -> an.Model:
    """What is written is what is wanted, and has the values that it had."""
    made = repacked(tensors, target)
    assert stored(made) == {name: (d, list(s), b) for name, (d, s, b) in want.items()}
    with an.parse(safetensors_bytes(tensors)) as before:
        for dtype in ("f32", "bf16"):
            values = [
                array.view(f"u{array.itemsize}")
                for model in (before, made)
                for array in (model[next(iter(model))].numpy(dtype=dtype),)
            ]
            assert (values[0] == values[1]).all()
    return made


CODES = raw(48, 32) & 0x77  # no code 8, which is +0 to some
SCALES = e4m3(48, 4)
CT = {
    "a.weight_packed": entry("U8", CODES),
    "a.weight_scale": entry("F8_E4M3", SCALES),
    "a.weight_global_scale": entry("F32", f32(64.0)),
}
MODELOPT = {
    "a.weight": entry("U8", CODES),
    "a.weight_scale": entry("F8_E4M3", SCALES),
    "a.weight_scale_2": entry("F32", np.float32(1 / 64)),
}


def tiled(scales: Array) -> Array:
    """As cuBLAS has them, one tile at a time."""
    tall, wide = -(-scales.shape[0] // 128), -(-scales.shape[1] // 4)
    out = np.zeros((tall * wide, 512), np.uint8)
    for (r, c), value in np.ndenumerate(scales):
        tile = r // 128 * wide + c // 4
        out[tile, r % 32 * 16 + r % 128 // 32 * 4 + c % 4] = value
    return out.reshape(tall * 128, wide * 4)


def comfy(codes: Array, scales: Array, shape: tuple[int, int]) -> dict[str, Entry]:
    padded = {"orig_shape": list(shape)} if any(n % 16 for n in shape) else {}
    marker = json.dumps({"format": "nvfp4", **padded}).encode()
    return {
        "a.weight": entry("U8", (codes << 4) | (codes >> 4)),
        "a.weight_scale": entry("F8_E4M3", tiled(scales)),
        "a.weight_scale_2": entry("F32", np.float32(1 / 64)),
        "a.comfy_quant": entry("U8", np.frombuffer(marker, np.uint8)),
    }


MLX = {
    "a.weight": entry("U32", CODES.view("<u4")),
    "a.scales": entry("U8", SCALES),
    "a.global_scale": entry("F32", np.float32(42)),
}

NVFP4 = {"nvfp4": CT, "nvfp4-modelopt": MODELOPT, "mlx-nvfp4": MLX}
NVFP4["comfy-nvfp4"] = comfy(CODES, SCALES, (48, 64))


def blocks_of(codes: Array, scales: Array, per_block: int, group: int) -> bytes:
    """ggml's blocks, one code at a time."""
    flat = np.stack((codes & 15, codes >> 4), -1).reshape(-1, group // 2 * 2)
    halves = bytearray()
    for row in flat:
        for i in range(group // 2):
            halves.append(int(row[i]) | int(row[group // 2 + i]) << 4)
    n_codes = per_block * group // 2
    out = b""
    for i in range(scales.size // per_block):
        out += scales.reshape(-1)[i * per_block : (i + 1) * per_block].tobytes()
        out += bytes(halves[i * n_codes : (i + 1) * n_codes])
    return out


EXPONENTS = RNG.integers(90, 140, (48, 2), dtype=np.uint8)
MXFP4: dict[str, dict[str, Entry]] = {
    "mxfp4": {
        "a.weight_packed": entry("U8", CODES),
        "a.weight_scale": entry("U8", EXPONENTS),
    },
    "mlx-mxfp4": {
        "a.weight": entry("U32", CODES.view("<u4")),
        "a.scales": entry("U8", EXPONENTS),
    },
}


AWQ = (0, 2, 4, 6, 1, 3, 5, 7)
Q = RNG.integers(0, 16, (32, 64), dtype=np.uint8)  # [out, in]
Z = RNG.integers(1, 16, (32, 2), dtype=np.uint8)
S = f16(32, 2)


def words(codes: Array, order: tuple[int, ...] = tuple(range(8))) -> Array:
    """Eight codes of the last axis to a word, one at a time."""
    out = np.zeros((*codes.shape[:-1], codes.shape[-1] // 8), np.uint32)
    for place, i in enumerate(order):
        out |= codes[..., i::8].astype(np.uint32) << np.uint32(4 * place)
    return out


def int4(zeros: bool = True, listed: Array | None = None) -> dict[str, Entry]:
    made = {
        "a.weight_packed": entry("I32", words(Q)),
        "a.weight_scale": entry("F16", S),
        "a.weight_zero_point": entry("I32", words(Z.T).T.copy()),
        "a.weight_shape": entry("I64", np.array([32, 64])),
    }
    if not zeros:
        del made["a.weight_zero_point"]
    if listed is not None:
        made["a.weight_g_idx"] = entry("I32", listed)
    return made


def gptq(zeros: Array = Z, listed: Array | None = None) -> dict[str, Entry]:
    runs = np.arange(64, dtype=np.int32) // 32
    return {
        "a.qweight": entry("I32", words(Q).T.copy()),
        "a.qzeros": entry("I32", words(zeros.T - 1)),
        "a.scales": entry("F16", S.T.copy()),
        "a.g_idx": entry("I32", runs if listed is None else listed),
    }


def awq(zeros: Array = Z) -> dict[str, Entry]:
    return {
        "a.qweight": entry("I32", words(np.ascontiguousarray(Q.T), AWQ)),
        "a.qzeros": entry("I32", words(np.ascontiguousarray(zeros.T), AWQ)),
        "a.scales": entry("F16", S.T.copy()),
    }


EIGHTS = np.full((32, 2), 8, np.uint8)
