"""A model compared with the library that its encodings belong to, value by value.

    python tools/validate.py hf://ORG/MODEL [--weights 6] [--seed 0]

Some weights of each encoding are decoded here and by the library, if that is installed, and the
rows are printed as docs/validated.md has them. A path, or any address that `amn` reads, will do; of
a large model elsewhere only these weights are read.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

import anamnesis as an

Arrays = dict[str, Any]  # a weight's stored tensors as torch has them, by the rest of their names


class Library(NamedTuple):
    """A library that defines an encoding, and how it decodes a weight."""

    package: str
    fits: Callable[[an.Model, an.Tensor], bool]
    decode: Callable[[an.Model, an.Tensor], Any]


class Row(NamedTuple):
    """What was compared of one encoding."""

    encoding: str
    library: str
    n_weights: int
    n_values: int
    n_differing: int


# --- the libraries --------------------------------------------------------------------------------


def _method(model: an.Model) -> str | None:
    return model._ledger.facts.method


def _parts(model: an.Model, weight: an.Tensor) -> Arrays:
    import torch

    module = weight.name.removesuffix("weight")
    found = {}
    for part in weight.parts:
        raw = torch.frombuffer(bytearray(part.read()), dtype=torch.uint8)
        name = _TORCH.get(part.dtype.name)
        dtype = getattr(torch, name) if name else torch.uint8
        found[part.name.removeprefix(module)] = raw.view(dtype).reshape(part.shape)
    return found


_TORCH = {
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "BF16": "bfloat16",
    "F16": "float16",
    "F32": "float32",
    "I8": "int8",
    "I32": "int32",
    "I64": "int64",
}


def _by_gguf(model: an.Model, weight: an.Tensor) -> Any:
    import gguf

    (part,) = weight.parts
    kind = gguf.GGMLQuantizationType[part.dtype.name]
    rows = int(np.prod(weight.shape[:-1]))
    return gguf.quants.dequantize(np.frombuffer(part.read(), np.uint8).reshape(rows, -1), kind)


def _by_transformers_fp8(model: an.Model, weight: an.Tensor) -> Any:
    import torch
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    parts = _parts(model, weight)
    return Fp8Dequantize(None)._dequantize_one(
        parts["weight"], parts["weight_scale_inv"], torch.float32
    )


def _by_compressed_tensors(model: an.Model, weight: an.Tensor) -> Any:
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationConfig

    said = model._checkpoint.config
    config = QuantizationConfig.model_validate(said["quantization_config"])
    if len(config.config_groups) != 1:
        raise NotImplementedError("several groups of layers")
    (scheme,) = config.config_groups.values()
    compressor = BaseCompressor.get_value_from_registry(scheme.format or config.format)
    return compressor.decompress(_parts(model, weight), scheme)["weight"]


def _by_bitsandbytes(model: an.Model, weight: an.Tensor) -> Any:
    import torch
    from bitsandbytes import functional

    parts = _parts(model, weight)
    state = {n.removeprefix("weight."): t for n, t in parts.items() if n != "weight"}
    made = functional.QuantState.from_dict(state, torch.device("cpu"))
    made.dtype = torch.float32
    return functional.dequantize_4bit(parts["weight"], made)


def _by_mlx(model: an.Model, weight: an.Tensor) -> Any:
    import mlx.core as mx
    import torch

    said = model._checkpoint.config["quantization"]
    arrays = [
        mx.array(np.frombuffer(part.read(), np.uint32 if i == 0 else np.uint16).reshape(part.shape))
        for i, part in enumerate(weight.parts)
    ]
    own = weight.parts[1].dtype.name
    scales, biases = (one.view(mx.bfloat16 if own == "BF16" else mx.float16) for one in arrays[1:])
    found = mx.dequantize(arrays[0], scales, biases, said["group_size"], said["bits"])
    values = torch.from_numpy(np.array(found.astype(mx.float32)))
    return values.to(torch.bfloat16 if own == "BF16" else torch.float16)


def _by_gptqmodel_awq(model: an.Model, weight: an.Tensor) -> Any:
    from gptqmodel.quantization.awq.utils.packing_utils import dequantize_gemm

    said = model._checkpoint.config["quantization_config"]
    parts = _parts(model, weight)
    scales = parts["scales"].float()
    codes = parts["qweight"], parts["qzeros"], scales
    return dequantize_gemm(*codes, said["bits"], said["group_size"]).T


LIBRARIES = (
    Library("gguf", lambda m, w: m.format_id == "gguf" and w.is_quantized, _by_gguf),
    Library(
        "transformers",
        lambda m, w: _method(m) == "fp8" and w.parts[-1].name.endswith("_scale_inv"),
        _by_transformers_fp8,
    ),
    Library(
        "compressed-tensors",
        lambda m, w: _method(m) == "compressed-tensors" and w.is_quantized,
        _by_compressed_tensors,
    ),
    Library("bitsandbytes", lambda m, w: "BitsAndBytes" in w.scheme, _by_bitsandbytes),
    Library("mlx", lambda m, w: "(MLX)" in w.scheme and "biases" in w.scheme, _by_mlx),
    Library("gptqmodel", lambda m, w: w.scheme.startswith("AWQ"), _by_gptqmodel_awq),
)


# --- comparing ------------------------------------------------------------------------------------


def validated(model: an.Model, n_weights: int, seed: int) -> Iterator[Row | str]:
    """Yield a row for each encoding of a model, or in a sentence why there is none."""
    by_encoding: dict[str, list[an.Tensor]] = {}
    for weight in model.weights.values():
        if weight.is_quantized or model.format_id == "gguf":
            by_encoding.setdefault(weight.scheme, []).append(weight)
    for encoding, weights in by_encoding.items():
        library = next((one for one in LIBRARIES if one.fits(model, weights[0])), None)
        if library is None:
            if weights[0].is_quantized:
                yield f"{encoding}: no library here decodes it"
            continue
        chosen = random.Random(seed).sample(weights, min(n_weights, len(weights)))
        counts = {}
        for weight in chosen:
            try:
                counts[weight] = _differing(model, weight, library)
            except ImportError as error:
                yield f"{encoding}: {library.package} is not installed ({error})"
                break
            except (NotImplementedError, ValueError) as error:
                yield f"{weight.name}: {library.package} does not decode it: {error}"
        if counts:
            n_values = sum(weight.size for weight in counts)
            name = f"{library.package} {version(library.package)}"
            yield Row(encoding, name, len(counts), n_values, sum(counts.values()))


def _differing(model: an.Model, weight: an.Tensor, library: Library) -> int:
    """Return how many values have other bits than the library's; all NaNs count as one."""
    theirs = library.decode(model, weight)
    if hasattr(theirs, "detach"):
        theirs = theirs.detach()
        dtype = str(theirs.dtype).removeprefix("torch.")
        theirs = theirs.float().numpy()
    else:
        dtype = "float32"
    ours = weight.numpy(dtype, math="reference").astype(np.float32)
    if ours.size != theirs.size:
        return max(ours.size, theirs.size)
    ours, theirs = (np.ascontiguousarray(a, np.float32).reshape(-1) for a in (ours, theirs))
    same = (ours.view(np.uint32) == theirs.view(np.uint32)) | (np.isnan(ours) & np.isnan(theirs))
    return int((~same).sum())


def main() -> int:
    """Print the rows of a model; 1 if a value differs, 2 if nothing could be compared."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", help="hf://ORG/MODEL, or what else amn reads")
    parser.add_argument("--weights", type=int, default=6, help="of each encoding [default: 6]")
    parser.add_argument("--seed", type=int, default=0, help="by which they are drawn")
    asked = parser.parse_args()
    rows = []
    with an.parse(asked.model) as model:
        for row in validated(model, asked.weights, asked.seed):
            if isinstance(row, str):
                print(row, file=sys.stderr)
                continue
            rows.append(row)
            print(
                f"| `{asked.model}` | {row.encoding} | {row.library} | {row.n_weights:,}"
                f" | {row.n_values:,} | {row.n_differing:,} |"
            )
    if not rows:
        return 2
    return int(any(row.n_differing for row in rows))


if __name__ == "__main__":
    sys.exit(main())
