"""Generated models in newer encodings: 4-bit floats, INT4, Marlin, EXL2, EXL3.

Codes are random and repeat after a megabyte. As in models.py nothing holds more than that.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from .gpt_oss import experts
from .models import CHUNK, SIDE, Stored, header

_EXPERTS, _ROWS = 32, 2880  # of a stack in gpt-oss-20b


def _write(
    path: Path, tensors: list[Stored], data: Callable[[Stored], bytes], metadata: str
) -> None:
    """Write tensors, each of what `data` gives, over and over."""
    with open(path, "wb") as file:
        file.write(header(tensors))
        for tensor in tensors:
            some = data(tensor)
            n_bytes = tensor[3]
            while n_bytes > 0:
                file.write(some[:n_bytes])
                n_bytes -= len(some)
    if metadata:
        path.with_name("config.json").write_text(metadata)


def _config(**arguments: object) -> str:
    """Return compressed-tensors' config.json for weights of all linear layers."""
    form = arguments.pop("format")
    weights = {"num_bits": 4, "symmetric": True, "dynamic": False} | arguments
    group = {"targets": ["Linear"], "weights": weights, "format": form}
    return json.dumps(
        {
            "quantization_config": {
                "quant_method": "compressed-tensors",
                "format": form,
                "config_groups": {"group_0": group},
            }
        }
    )


def write_nvfp4(path: Path, n_output: int) -> None:
    """Write compressed-tensors' NVFP4: square weights of 4096 that take so much as BF16."""
    import numpy as np

    rng = np.random.default_rng(1)
    codes = rng.integers(0, 256, CHUNK, dtype=np.uint8).tobytes()
    scales = rng.integers(0x28, 0x70, CHUNK, dtype=np.uint8).tobytes()
    tensors: list[Stored] = []
    for i in range(max(1, round(n_output / (2 * SIDE * SIDE)))):
        name = f"model.layers.{i}.mlp.up_proj"
        tensors.append((f"{name}.weight_packed", "U8", (SIDE, SIDE // 2), SIDE * SIDE // 2))
        tensors.append((f"{name}.weight_scale", "F8_E4M3", (SIDE, SIDE // 16), SIDE * SIDE // 16))
        tensors.append((f"{name}.weight_global_scale", "F32", (1,), 4))
    parts = {"U8": codes, "F8_E4M3": scales, "F32": np.float32(3000).tobytes()}
    group = {"type": "float", "strategy": "tensor_group", "group_size": 16}
    _write(path, tensors, lambda t: parts[t[1]], _config(format="nvfp4-pack-quantized", **group))


def write_int4(path: Path, n_output: int) -> None:
    """Write compressed-tensors' INT4 in groups of 128: the same weights."""
    import numpy as np

    rng = np.random.default_rng(1)
    parts = {
        "I32": rng.integers(0, 256, CHUNK, dtype=np.uint8).tobytes(),
        "BF16": rng.integers(0x3B00, 0x3C80, CHUNK // 2, dtype=np.uint16).tobytes(),
        "I64": np.array([SIDE, SIDE]).tobytes(),
    }
    tensors: list[Stored] = []
    for i in range(max(1, round(n_output / (2 * SIDE * SIDE)))):
        name = f"model.layers.{i}.mlp.up_proj"
        tensors.append((f"{name}.weight_packed", "I32", (SIDE, SIDE // 8), SIDE * SIDE // 2))
        tensors.append((f"{name}.weight_scale", "BF16", (SIDE, SIDE // 128), SIDE * SIDE // 64))
        tensors.append((f"{name}.weight_shape", "I64", (2,), 16))
    group = {"type": "int", "strategy": "group", "group_size": 128}
    _write(path, tensors, lambda t: parts[t[1]], _config(format="pack-quantized", **group))


def write_gpt_oss(path: Path, n_output: int) -> None:
    """Write stacks of experts in MXFP4 as gpt-oss-20b has them; reading them turns each."""
    import numpy as np

    rng = np.random.default_rng(1)
    codes = rng.integers(0, 256, CHUNK, dtype=np.uint8).tobytes()
    scales = rng.integers(118, 127, CHUNK, dtype=np.uint8).tobytes()
    tensors: list[Stored] = []
    stack = 2 * _EXPERTS * _ROWS * _ROWS
    for i in range(max(1, round(n_output / stack))):
        tensors += experts(f"model.layers.{i}.mlp.experts.down_proj", _EXPERTS, _ROWS)
    _write(path, tensors, lambda t: scales if t[0].endswith("_scales") else codes, "")


def write_marlin_8bit(path: Path, n_output: int) -> None:
    """Write Marlin in 8 bits and groups of 128: the same weights."""
    tensors: list[Stored] = []
    for i in range(max(1, round(n_output / (2 * SIDE * SIDE)))):
        name = f"model.layers.{i}.mlp.up_proj"
        tensors.append((f"{name}.B", "I32", (SIDE // 16, 4 * SIDE), SIDE * SIDE))
        tensors.append((f"{name}.s", "F16", (SIDE // 128, SIDE), SIDE * SIDE // 64))
    _write(path, tensors, _marlin, "")


def write_marlin_24(path: Path, n_output: int) -> None:
    """Write compressed-tensors' 2:4 sparse Marlin in 4 bits: the same weights."""
    tensors: list[Stored] = []
    for i in range(max(1, round(n_output / (2 * SIDE * SIDE)))):
        name = f"model.layers.{i}.mlp.up_proj"
        tensors.append((f"{name}.weight_packed", "I32", (SIDE // 32, 2 * SIDE), SIDE * SIDE // 4))
        tensors.append((f"{name}.scale_packed", "F16", (SIDE // 128, SIDE), SIDE * SIDE // 64))
        tensors.append((f"{name}.meta", "I16", (SIDE // 32, 2 * SIDE), SIDE * SIDE // 8))
    _write(path, tensors, _marlin, "")


def _marlin(tensor: Stored) -> bytes:
    """Return codes, scales, or which two of four columns are stored."""
    import numpy as np

    rng = np.random.default_rng(1)
    if tensor[1] == "I32":
        return rng.bytes(CHUNK)
    if tensor[1] == "F16":
        return rng.integers(0x1800, 0x2400, CHUNK // 2, dtype=np.uint16).tobytes()
    pairs = rng.choice(np.array([4, 8, 9, 12, 13, 14], np.uint8), (2, CHUNK))
    return (pairs[0] | pairs[1] << 4).tobytes()


def write_exl2(path: Path, n_output: int) -> None:
    """Write EXL2 in groups of 128, of which half have 5 bits and half 3, in any order."""
    import numpy as np

    rng = np.random.default_rng(1)
    n_groups = SIDE // 128
    bits = np.repeat([5, 3], n_groups // 2)
    lines = np.concatenate([[0], np.cumsum(bits * 128 // 32)])
    parts = {
        "q_weight": rng.bytes(CHUNK),
        "q_scale": rng.bytes(CHUNK),
        "q_scale_max": rng.uniform(0.01, 0.02, n_groups).astype("<f2").tobytes(),
        "q_groups": np.stack([bits, lines[:-1]], 1).astype("<i2").tobytes(),
        "q_invperm": rng.permutation(SIDE).astype("<i4").tobytes(),
    }
    tensors: list[Stored] = []
    for i in range(max(1, round(n_output / (2 * SIDE * SIDE)))):
        name = f"model.layers.{i}.mlp.up_proj"
        n_lines = int(lines[-1])
        tensors.append((f"{name}.q_weight", "I32", (n_lines, SIDE), 4 * n_lines * SIDE))
        tensors.append((f"{name}.q_scale", "I32", (n_groups, SIDE // 8), n_groups * SIDE // 2))
        tensors.append((f"{name}.q_scale_max", "F16", (n_groups,), 2 * n_groups))
        tensors.append((f"{name}.q_groups", "I16", (2 * n_groups,), 4 * n_groups))
        tensors.append((f"{name}.q_invperm", "I32", (SIDE,), 4 * SIDE))
    _write(path, tensors, lambda t: parts[t[0].rpartition(".")[2]], "")


def write_exl3(path: Path, n_output: int) -> None:
    """Write EXL3 of 4 bits, with the first codebook."""
    import numpy as np

    rng = np.random.default_rng(1)
    codes = rng.bytes(CHUNK)
    scales = rng.uniform(-0.1, 0.1, CHUNK // 2).astype("<f2").tobytes()
    tensors: list[Stored] = []
    for i in range(max(1, round(n_output / (2 * SIDE * SIDE)))):
        name = f"model.layers.{i}.mlp.up_proj"
        tensors.append((f"{name}.trellis", "I16", (SIDE // 16, SIDE // 16, 64), SIDE * SIDE // 2))
        tensors += [(f"{name}.{side}", "F16", (SIDE,), 2 * SIDE) for side in ("suh", "svh")]
    _write(path, tensors, lambda t: codes if t[1] == "I16" else scales, "")


MODERN: dict[str, Callable[[Path, int], None]] = {
    "nvfp4": write_nvfp4,
    "int4": write_int4,
    "gpt-oss": write_gpt_oss,
    "marlin-8bit": write_marlin_8bit,
    "marlin-24": write_marlin_24,
    "exl2": write_exl2,
    "exl3": write_exl3,
}
