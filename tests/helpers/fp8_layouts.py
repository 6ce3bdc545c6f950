"""What the FP8 tests share: layouts as data, random inputs, and torch as the decoder."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch

from helpers.handmade import Entry

TORCH = {
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "F8_E8M0": torch.float8_e8m0fnu,
    "U8": torch.uint8,
    "I8": torch.int8,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
NAMES = {dtype: name for name, dtype in TORCH.items()}
OUTPUTS: dict[Any, Any] = {
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "f32": torch.float32,
}
QUIET_NAN = {torch.bfloat16: 0x7FC0, torch.float16: 0x7E00, torch.float32: 0x7FC00000}


@dataclass(frozen=True)
class Layout:
    """A weight and its scale.

    `view` is the shape in which the scale broadcasts over the weight; with `block`, it is the
    shape of the grid whose every entry stands for that many rows and columns.
    """

    name: str
    shape: tuple[int, ...]
    scale_shape: tuple[int, ...]
    view: tuple[int, ...]
    block: tuple[int, int] | None = None
    scale_dtypes: tuple[str, ...] = ("F32", "BF16", "F16")
    tell: bool = False  # shapes leave the block size open, the config has to tell it

    def __str__(self) -> str:
        return self.name

    def expand(self, scale: torch.Tensor) -> torch.Tensor:
        """The float32 scale of every element."""
        if scale.dtype == torch.uint8:
            scale = scale.view(torch.float8_e8m0fnu)
        scale = scale.to(torch.float32).reshape(self.view)
        if self.block is not None:
            rows, cols = self.shape[-2:]
            scale = scale.repeat_interleave(self.block[0], -2)[..., :rows, :]
            scale = scale.repeat_interleave(self.block[1], -1)[..., :cols]
        return scale.expand(self.shape)


def _grid(name: str, shape: tuple[int, ...], block: tuple[int, int], **other: object) -> Layout:
    grid = (*shape[:-2], -(-shape[-2] // block[0]), -(-shape[-1] // block[1]))
    return Layout(name, shape, grid, grid, block, **other)  # type: ignore[arg-type]


MX = ("F8_E8M0", "U8")
ANY = ("F32", "BF16", "F16", "F8_E8M0")
LAYOUTS = (
    Layout("tensor", (67, 130), (), (1, 1), None, ANY),
    Layout("tensor [1]", (67, 130), (1,), (1, 1)),
    Layout("tensor [1,1]", (67, 131), (1, 1), (1, 1)),
    Layout("tensor of a vector", (131,), (1,), (1,)),
    Layout("channel [M,1]", (67, 130), (67, 1), (67, 1), None, ANY),
    Layout("channel [M]", (67, 130), (67,), (67, 1)),
    Layout("channel of a square", (67, 67), (67,), (67, 1)),
    Layout("columns [1,N]", (67, 130), (1, 130), (1, 130)),
    Layout("channel of a convolution", (6, 5, 3, 3), (6, 1, 1, 1), (6, 1, 1, 1)),
    _grid("128x128", (256, 384), (128, 128), scale_dtypes=ANY),
    _grid("128x128, shorter edges", (576, 712), (128, 128), scale_dtypes=ANY),
    _grid("128x128, shorter edges that could be even", (200, 300), (128, 128), tell=True),
    _grid("128x128, less than one block", (40, 300), (128, 128), tell=True),
    _grid("64x128", (192, 384), (64, 128)),
    _grid("1x128", (5, 521), (1, 128)),
    _grid("128x1", (521, 5), (128, 1)),
    _grid("96x96", (192, 192), (96, 96), tell=True),
    _grid("96x96, shorter edges", (200, 300), (96, 96), tell=True),
    _grid("1x32", (33, 160), (1, 32), scale_dtypes=MX),
    _grid("1x32, shorter edge", (33, 150), (1, 32), scale_dtypes=MX),
    _grid("1x32, one block", (33, 32), (1, 32), scale_dtypes=MX),
    _grid("1x32, stacked", (3, 5, 96), (1, 32), scale_dtypes=MX),
    _grid("stacked 128x128", (3, 256, 384), (128, 128), scale_dtypes=ANY),
    _grid("stacked 128x128, shorter edges", (3, 160, 144), (128, 128), tell=True),
    _grid("doubly stacked 64x64", (2, 3, 128, 192), (64, 64)),
    Layout("stacked [E,M,1]", (3, 17, 40), (3, 17, 1), (3, 17, 1)),
    Layout("stacked [E,M]", (3, 17, 40), (3, 17), (3, 17, 1)),
    Layout("stacked [E,1,1]", (3, 17, 40), (3, 1, 1), (3, 1, 1)),
    Layout("stacked [E]", (3, 17, 40), (3,), (3, 1, 1)),
    Layout("stacked [E,1,N]", (3, 17, 40), (3, 1, 40), (3, 1, 40)),
    Layout("stacked, one for all", (3, 17, 40), (1, 1, 1), (1, 1, 1)),
    Layout("doubly stacked [A,B,M,1]", (2, 3, 17, 40), (2, 3, 17, 1), (2, 3, 17, 1)),
    Layout("doubly stacked [A,B,1,1]", (2, 3, 17, 40), (2, 3, 1, 1), (2, 3, 1, 1)),
    Layout("kohya [M,nb,1]", (33, 256), (33, 4, 1), (33, 4), (1, 64)),
    Layout("kohya [M,1,1]", (33, 256), (33, 1, 1), (33, 1)),
    Layout("ModelOpt [gm,1,gn,1]", (256, 384), (2, 1, 3, 1), (2, 3), (128, 128)),
)


def random_codes(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "F8_E4M3"
) -> torch.Tensor:
    """Codes of any bits, NaNs and infinities among them."""
    raw = rng.integers(0, 256, prod(shape), np.uint8)
    return torch.from_numpy(raw).view(TORCH[dtype]).reshape(shape)


def random_scales(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "F32"
) -> torch.Tensor:
    """Scales as models have them, with a few of any bits among them."""
    if dtype in MX:
        codes = rng.integers(100, 150, prod(shape), np.uint8)
        return torch.from_numpy(codes).view(TORCH[dtype]).reshape(shape)
    usual = torch.from_numpy(np.exp2(rng.uniform(-16, 4, prod(shape))))
    scales = usual.to(TORCH[dtype])
    raw = torch.frombuffer(bytearray(rng.bytes(scales.nbytes)), dtype=torch.uint8)
    some = torch.from_numpy(rng.random(prod(shape)) < 0.05)
    return torch.where(some, raw.view(TORCH[dtype]), scales).reshape(shape)


def product(codes: torch.Tensor, scale: torch.Tensor, output: str) -> torch.Tensor:
    """DeepSeek's formula: one float32 multiplication, one cast."""
    return (codes.to(torch.float32) * scale).to(OUTPUTS[output])


def raw_bytes(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor of any dtype."""
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def quiet(tensor: torch.Tensor) -> bytes:
    """The bytes of a result, every NaN made the one quiet NaN."""
    width = {2: torch.int16, 4: torch.int32}[tensor.element_size()]
    pattern = torch.tensor(QUIET_NAN[tensor.dtype], dtype=width)
    return raw_bytes(torch.where(tensor.isnan(), pattern, tensor.contiguous().view(width)))


def entry(tensor: torch.Tensor) -> Entry:
    """A tensor as handmade files take it."""
    return NAMES[tensor.dtype], tuple(tensor.shape), raw_bytes(tensor)
