"""A small FP8 checkpoint from a fixed seed, remembered and checked.

The truth is computed with numpy and ml_dtypes alone: no code of this package takes part in making
the checkpoint, in reading the two files, or in the reference.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import ml_dtypes
import numpy as np

from anamnesis.base.errors import OutputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

INPUT_NAME = "model-fp8.safetensors"
OUTPUT_NAME = "model-bf16.safetensors"
SIGNATURE = {"made_by": "anamnesis demo"}  # in __metadata__ of both files

SEED = 1899
HIDDEN, MLP, VOCABULARY = 256, 320, 320  # 320: the last block of 128 is a partial one
E4M3_MAX = 448.0

_DTYPE_NAMES = {"float8_e4m3fn": "F8_E4M3", "float32": "F32", "bfloat16": "BF16"}


class Layer(NamedTuple):
    """One quantised weight: its name without `.weight`, its shape, and how it is scaled."""

    name: str
    shape: tuple[int, int]
    scaling: str


_ATTENTION = "model.layers.0.self_attn"
_FEED = "model.layers.0.mlp"

LAYERS = (
    *(Layer(f"{_ATTENTION}.{p}_proj", (HIDDEN, HIDDEN), "128x128 blocks") for p in "qo"),
    *(Layer(f"{_ATTENTION}.{p}_proj", (HIDDEN // 2, HIDDEN), "128x128 blocks") for p in "kv"),
    Layer(f"{_FEED}.gate_proj", (MLP, HIDDEN), "128x128 blocks"),
    Layer(f"{_FEED}.up_proj", (MLP, HIDDEN), "per channel"),
    Layer(f"{_FEED}.down_proj", (HIDDEN, MLP), "per tensor"),
)

# --- making a checkpoint --------------------------------------------------------------------------


def original_weights() -> dict[str, Array]:
    """Return the weights before quantisation, in float32, equal on every machine.

    They are made to look like those of a trained layer: near normal, rows of different spread, a
    few outliers.
    """
    rng = np.random.default_rng(SEED)
    weights = {}
    for layer in LAYERS:
        rows, cols = layer.shape
        spread = np.exp(rng.normal(0.0, 0.25, (rows, 1))) / np.sqrt(cols)
        outliers = np.where(rng.random(layer.shape) < 1e-3, 8.0, 1.0)
        weights[layer.name] = (rng.normal(size=layer.shape) * spread * outliers).astype(np.float32)
    return weights


def checkpoint(weights: Mapping[str, Array]) -> dict[str, Array]:
    """Quantise as publishers do: each scale is its block's largest magnitude, over 448."""
    rng = np.random.default_rng(SEED + 1)
    norms = ("model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm")
    plain = {  # what is never quantised
        "model.embed_tokens.weight": rng.normal(0.0, 0.02, (VOCABULARY, HIDDEN)),
        **{f"{name}.weight": rng.normal(1.0, 0.1, HIDDEN) for name in (*norms, "model.norm")},
    }
    stored = {n: t.astype(np.float32).astype(ml_dtypes.bfloat16) for n, t in plain.items()}
    for layer in LAYERS:
        codes, scale = _quantise(weights[layer.name], layer.scaling)
        suffix = "weight_scale_inv" if layer.scaling.endswith("blocks") else "weight_scale"
        stored[f"{layer.name}.weight"] = codes
        stored[f"{layer.name}.{suffix}"] = scale
    return stored


def _quantise(weight: Array, scaling: str, block: int = 128) -> tuple[Array, Array]:
    """Return codes and scales; a scale multiplies the codes to give the weight again."""
    height, width = {
        "per tensor": weight.shape,
        "per channel": (1, weight.shape[1]),
        "128x128 blocks": (block, block),
    }[scaling]
    rows, cols = range(0, weight.shape[0], height), range(0, weight.shape[1], width)
    grid = [[np.abs(weight[r : r + height, c : c + width]).max() for c in cols] for r in rows]
    maxima = np.array(grid[0] if scaling == "per tensor" else grid)
    scale = (maxima / E4M3_MAX).astype(np.float32)
    scaled = np.clip(weight / _expand(scale, weight.shape), -E4M3_MAX, E4M3_MAX)
    return scaled.astype(ml_dtypes.float8_e4m3fn), scale


def _expand(scale: Array, shape: tuple[int, ...], block: int = 128) -> Array:
    """Return the scale of each element."""
    if scale.ndim == 1 or scale.shape[1] == 1:
        return np.broadcast_to(scale, shape)
    grid = scale.repeat(block, axis=0).repeat(block, axis=1)
    return grid[: shape[0], : shape[1]]


# --- safetensors, as its specification has it -----------------------------------------------------


def stored_dtype(array: Array) -> str:
    """Return safetensors' name of an array's dtype."""
    return _DTYPE_NAMES[array.dtype.name]


def _to_safetensors(tensors: Mapping[str, Array]) -> bytes:
    header: dict[str, Any] = {"__metadata__": SIGNATURE}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes
        header[name] = {
            "dtype": stored_dtype(tensor),
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(tensor.tobytes() for tensor in tensors.values())
    return len(text).to_bytes(8, "little") + text + data


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """Return a safetensors file's header, and where its data starts."""
    with open(path, "rb") as file:
        n = int.from_bytes(file.read(8), "little")
        return json.loads(file.read(n)), 8 + n


def _read_tensor_bytes(path: Path) -> dict[str, bytes]:
    header, start = _read_header(path)
    data = path.read_bytes()[start:]
    return {
        name: data[slice(*entry["data_offsets"])]
        for name, entry in header.items()
        if name != "__metadata__"
    }


# --- running and checking -------------------------------------------------------------------------


def run_demo(directory: str | os.PathLike[str] = ".") -> bool:
    """Make the checkpoint in `directory`, remember it, compare; return whether all bytes agree."""
    folder = Path(directory)
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder}: is not a directory; name one")
    source, output = folder / INPUT_NAME, folder / OUTPUT_NAME
    again = _check_own([source, output])
    weights = original_weights()
    stored = checkpoint(weights)
    data = _to_safetensors(stored)
    folder.mkdir(parents=True, exist_ok=True)
    source.write_bytes(data)
    made = "made again, as it was by an earlier demo" if again else "made from a fixed seed"
    print(f"{source}: {len(stored)} tensors, {len(data):,} bytes, {made}\n")
    _amn("inspect", str(source))
    _amn("remember", str(source), *(["--force"] if again else []))
    return _compare(weights, stored, _read_tensor_bytes(output))


def _check_own(paths: list[Path]) -> bool:
    """Whether files of an earlier demo exist; refuse to replace anybody else's."""
    present = [path for path in paths if path.exists()]
    for path in present:
        try:
            metadata = _read_header(path)[0].get("__metadata__", {})
            is_own = SIGNATURE.items() <= metadata.items()
        except (OSError, ValueError, AttributeError, MemoryError, OverflowError):
            is_own = False
        if not is_own:
            raise OutputError(
                f"{path}: exists and is not the demo's; run `amn demo DIRECTORY` with another one"
            )
    return bool(present)


def _amn(*args: str) -> None:
    """Run a command as the shell would, and show it."""
    from anamnesis.cli.app import NESTED, cli

    print(f"$ amn {' '.join(args)}", flush=True)
    code = cli.main(list(args), prog_name="amn", standalone_mode=False, obj=NESTED)
    if code:
        raise OutputError(f"`amn {args[0]}` failed with exit code {code}")
    print()


def _truth(stored: Mapping[str, Array]) -> dict[str, Array]:
    """Return every weight in BF16: float32 code times float32 scale, rounded by ml_dtypes."""
    truth = {name: t for name, t in stored.items() if t.dtype == ml_dtypes.bfloat16}
    for layer in LAYERS:
        name = f"{layer.name}.weight"
        scale = next(stored[s] for s in (f"{name}_scale_inv", f"{name}_scale") if s in stored)
        product = stored[name].astype(np.float32) * _expand(scale, layer.shape)
        truth[name] = product.astype(ml_dtypes.bfloat16)
    return truth


def _compare(
    weights: Mapping[str, Array], stored: Mapping[str, Array], output: Mapping[str, bytes]
) -> bool:
    """Print how the output compares with the truth and with the weights before quantisation."""
    truth = _truth(stored)
    equal = {name: output.get(name) == t.tobytes() for name, t in truth.items()}
    for line in _table(weights, truth, equal):
        print(line)
    n_wrong = len(equal) - sum(equal.values()) + len(output.keys() - truth.keys())
    if n_wrong:
        print(f"\n{n_wrong} of {len(truth)} tensors are NOT what numpy and ml_dtypes compute.")
        return False
    n_bytes = sum(len(data) for data in output.values())
    print(
        f"\nAll {len(truth)} tensors, {n_bytes:,} bytes, equal what numpy and ml_dtypes compute:"
        "\nfloat32 code x float32 scale, rounded once. What differs from the original"
        "\nweights (largest error: as a part of the largest weight) is what FP8 took when"
        "\nthe checkpoint was made; nothing was lost on the way back."
    )
    return True


def _table(
    weights: Mapping[str, Array], truth: Mapping[str, Array], equal: Mapping[str, bool]
) -> Iterator[str]:
    yield f"{'':<33}{'':<16}{'bytes vs':<10}{'against the original':>20}"
    yield f"{'weight':<33}{'scales':<16}{'numpy':<7}{'SNR':>9}{'largest error':>15}"
    for layer in LAYERS:
        name = f"{layer.name}.weight"
        original = weights[layer.name]
        error = truth[name].astype(np.float64) - original
        snr = 10 * np.log10((original.astype(np.float64) ** 2).sum() / (error**2).sum())
        worst = np.abs(error).max() / np.abs(original).max()
        verdict = "equal" if equal[name] else "DIFFER"
        short = layer.name.removeprefix("model.")
        yield f"{short:<33}{layer.scaling:<16}{verdict:<7}{snr:>6.1f} dB{worst:>14.2%}"
    rest = [name for name in truth if name.removesuffix(".weight") not in weights]
    verdict = "equal" if all(equal[name] for name in rest) else "DIFFER"
    yield f"{'norms and embeddings':<33}{'not quantised':<16}{verdict:<7}"
