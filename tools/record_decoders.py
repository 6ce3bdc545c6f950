"""Write what libraries decode, where they are: `python tools/record_decoders.py quark quanto`.

They ask for more than tests should install, so their answers are kept: a safetensors file for each
in tests/schemes/recorded, with the stored tensors of each case (`CASE/stored/NAME`), what the
library's own code makes of them in float32 (`CASE/NAME`), and the config of each case as metadata.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

Tensors = dict[str, torch.Tensor]
Case = tuple[str, dict[str, Any], Tensors, Tensors]  # its name, config, what is stored, what it is

RECORDED = Path(__file__).parents[1] / "tests/schemes/recorded"


def any_floats(
    generator: torch.Generator, shape: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    """Return floats of any bits, NaNs and infinities among them."""
    integers = {2: torch.int16, 4: torch.int32}[dtype.itemsize]
    top = torch.iinfo(integers).max
    raw = torch.randint(-top, top, shape, generator=generator, dtype=torch.int64)
    return raw.to(integers).view(dtype)


def quark() -> Iterator[Case]:
    """int4, uint4 and int8: in groups, channels, and with one scale; FP6 in groups."""
    from quark.torch.export.nn.modules.realquantizer import StaticScaledRealQuantizer
    from quark.torch.quantization.config.config import QTensorConfig
    from quark.torch.quantization.config.type import Dtype, QSchemeType, RoundType, ScaleType
    from quark.torch.quantization.observer import observer

    generator = torch.Generator().manual_seed(1)
    observers = {
        "group": observer.PerGroupMinMaxObserver,
        "channel": observer.PerChannelMinMaxObserver,
        "tensor": observer.PerTensorMinMaxObserver,
    }
    ranges = {"int4": (-8, 8), "uint4": (0, 16), "int8": (-128, 128)}
    kinds = [
        (d, s, r)
        for d in ("int4", "uint4")
        for s in ("group", "channel", "tensor")
        for r in (True, False)
    ]
    kinds += [("int8", "group", True)]
    for i, (dtype, scheme, reorder) in enumerate(kinds):
        rows, cols, size = 24, 64, 32
        floats = (torch.bfloat16, torch.float32)[i % 2]
        spec = QTensorConfig(
            dtype=Dtype.from_str(dtype),
            qscheme=QSchemeType(f"per_{scheme}"),
            ch_axis={"group": -1, "channel": 0, "tensor": None}[scheme],
            group_size=size if scheme == "group" else None,
            symmetric=False,
            is_dynamic=False,
            scale_type=ScaleType.float,
            round_method=RoundType.half_even,
            observer_cls=observers[scheme],
        )
        grid = {"group": (rows, cols // size), "channel": (rows,), "tensor": ()}[scheme]
        decoder = StaticScaledRealQuantizer(
            spec, None, reorder, True, floats, torch.device("cpu"), grid, grid
        )
        pack = decoder.pack_method
        codes = torch.randint(*ranges[dtype], (rows, cols), generator=generator, dtype=torch.int32)
        zeros = torch.randint(*ranges[dtype], grid, generator=generator, dtype=torch.int32)
        scale = any_floats(generator, grid, floats)
        decoder.scale = scale.t().contiguous() if scheme == "group" else scale
        decoder.zero_point = pack.pack(zeros, reorder)
        packed = pack.pack(codes, reorder)
        order = "reorder" if reorder else "order"
        told = {"dtype": dtype, "group_size": spec.group_size, "qscheme": f"per_{scheme}"}
        config = {
            "quant_method": "quark",
            "export": {"pack_method": order},
            "global_quant_config": {"weight": told},
        }
        stored = {
            "weight": packed,
            "weight_scale": decoder.scale,
            "weight_zero_point": decoder.zero_point,
        }
        told = {"quantization_config": config}
        yield f"{dtype}-{scheme}-{order}", told, stored, {"weight": decoder(packed)}
    for dtype in ("fp6_e2m3", "fp6_e3m2"):
        spec = QTensorConfig(
            dtype=Dtype.from_str(dtype),
            qscheme=QSchemeType.per_group,
            ch_axis=-1,
            group_size=32,
            is_dynamic=False,
            scale_type=ScaleType.float,
            scale_format="e8m0",
            scale_calculation_mode="even",
            round_method=RoundType.half_even,
            observer_cls=observer.PerBlockMXObserver,
        )
        shape = (128, 2)
        codes = torch.randint(0, 256, (128, 48), generator=generator, dtype=torch.uint8)
        scale = torch.arange(256).to(torch.uint8).reshape(shape)
        decoder = StaticScaledRealQuantizer(
            spec, None, True, True, torch.float32, torch.device("cpu"), shape, None
        )
        decoder.scale = scale
        config = {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": dtype}}}
        stored = {"weight": codes, "weight_scale": scale}
        yield dtype, {"quantization_config": config}, stored, {"weight": decoder(codes)}


def quanto() -> Iterator[Case]:
    """qint4 and qint2, in groups that fill their bytes and that do not."""
    from optimum.quanto import qtypes
    from optimum.quanto.tensor.packed import PackedTensor
    from optimum.quanto.tensor.weights.qbits import WeightQBitsTensor

    generator = torch.Generator().manual_seed(2)
    cases = [(5, 192, 96), (3, 256, 128), (3, 160, 32), (7, 20, 20), (3, 64, 64)]
    dtypes = (torch.bfloat16, torch.float16, torch.float32)
    for bits in (4, 2):
        for floats, (rows, cols, size) in product(dtypes, cases):
            n = rows * cols // size
            codes = torch.randint(0, 1 << bits, (n, size), generator=generator, dtype=torch.uint8)
            data = PackedTensor.pack(codes, bits)
            scale, shift = (any_floats(generator, (n, 1), floats) for _ in range(2))
            weight = WeightQBitsTensor(
                qtypes[f"qint{bits}"],
                0,
                size,
                torch.Size((rows, cols)),
                (cols, 1),
                data,
                scale.float(),
                shift.float(),
            )
            stored = {"_data._data": data._data, "_scale": scale, "_shift": shift}
            yield (
                f"{bits}-{rows}x{cols}-{str(floats).removeprefix('torch.')}",
                {"hidden_size": cols, "intermediate_size": rows},
                {f"weight.{k}": v for k, v in stored.items()},
                {"weight": weight.dequantize()},
            )


def hqq() -> Iterator[Case]:
    """All widths that it has, both axes, seen as floats and not."""
    from hqq.core.quantize import Quantizer
    from hqq.core.utils import encode_safetensor_type

    generator = torch.Generator().manual_seed(3)
    for nbits, axis, as_float in product((8, 6, 5, 4, 3, 2, 1.58, 1), (0, 1), (False, True)):
        shape, size = torch.Size((8, 32)), 8
        floats = torch.float16 if as_float else torch.bfloat16
        values = torch.randn(shape, generator=generator)
        codes, meta = Quantizer.quantize(
            values,
            nbits,
            True,
            size,
            False,
            axis=axis,
            compute_dtype=floats,
            view_as_float=as_float,
            device="cpu",
        )
        meta["compute_dtype"] = torch.float32
        scale, zero = (any_floats(generator, meta[k].shape, floats) for k in ("scale", "zero"))
        exact = Quantizer.dequantize(codes, {**meta, "scale": scale.float(), "zero": zero.float()})
        meta |= {"scale": scale, "zero": zero, "compute_dtype": floats}
        stored = {k: encode_safetensor_type(v) for k, v in meta.items() if v is not None}
        case = f"{nbits}-axis{axis}{'-as-float' if as_float else ''}"
        yield (
            case,
            {"quantization_config": {"quant_method": "hqq"}},
            {"W_q": codes, **stored},
            {"weight": exact},
        )


LIBRARIES: dict[str, tuple[str, Callable[[], Iterator[Case]]]] = {
    "quark": ("amd-quark", quark),
    "quanto": ("optimum-quanto", quanto),
    "hqq": ("hqq", hqq),
}


def record(name: str) -> None:
    """Write the file of a library."""
    package, cases = LIBRARIES[name]
    tensors: Tensors = {}
    told = {"library": f"{package} {version(package)}"}
    for case, config, stored, results in cases():
        told[case] = json.dumps(config)
        tensors |= {f"{case}/stored/{k}": v.contiguous() for k, v in stored.items()}
        tensors |= {f"{case}/{k}": v.float().contiguous() for k, v in results.items()}
    RECORDED.mkdir(exist_ok=True)
    save_file(tensors, RECORDED / f"{name}.safetensors", told)


if __name__ == "__main__":
    for library in sys.argv[1:]:
        record(library)
