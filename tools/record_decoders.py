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
        section = {
            "quant_method": "quark",
            "export": {"pack_method": order},
            "global_quant_config": {"weight": told},
        }
        stored = {
            "weight": packed,
            "weight_scale": decoder.scale,
            "weight_zero_point": decoder.zero_point,
        }
        yield f"{dtype}-{scheme}-{order}", section, stored, {"weight": decoder(packed)}


LIBRARIES: dict[str, tuple[str, Callable[[], Iterator[Case]]]] = {"quark": ("amd-quark", quark)}


def record(name: str) -> None:
    """Write the file of a library."""
    package, cases = LIBRARIES[name]
    tensors: Tensors = {}
    told = {"library": f"{package} {version(package)}"}
    for case, section, stored, results in cases():
        told[case] = json.dumps(section)
        tensors |= {f"{case}/stored/{k}": v.contiguous() for k, v in stored.items()}
        tensors |= {f"{case}/{k}": v.float().contiguous() for k, v in results.items()}
    RECORDED.mkdir(exist_ok=True)
    save_file(tensors, RECORDED / f"{name}.safetensors", told)


if __name__ == "__main__":
    for library in sys.argv[1:]:
        record(library)
