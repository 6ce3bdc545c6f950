"""Encodings of floats with a small scale for each group of a row: NVFP4, MXFP4, MXFP8.

    codes   two E2M1 to a byte, the first in its low bits [rows, cols / 2], or E4M3 [rows, cols]
    scales  E4M3 for each 16 (NVFP4), E8M0 in U8 for each 32 (MX)              [rows, groups]
    second  F32, of NVFP4 only: what scales are divided by, or multiplied with

Each is what one library writes, byte for byte: compressed-tensors' compression of what
llm-compressor's min-max observer finds, where scales come from numbers rounded to the weight's own
dtype; or what ModelOpt's `NVFP4QTensor`, `MXFP4QTensor` and `MXFP8QTensor` make, in float32. Both
share the second scale among layers that inference runs as one, as merged.py has it. Weights only:
no ranges of activations are known here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from anamnesis import _core
from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.blockwise_encoding import BlockwiseEncoding
from anamnesis.schemes.core.encoding import Extent, Layers, Loss, Repack, Survey, Task, not_finite
from anamnesis.schemes.core.weight import Band, Weight
from anamnesis.schemes.fp4.formats import FORMATS
from anamnesis.schemes.says.compressed_tensors import config_of
from anamnesis.schemes.says.linear import Tool
from anamnesis.schemes.says.modelopt import excluded, modelopt_refusal

if TYPE_CHECKING:
    from anamnesis.schemes.core.layout import ExpertsTool

__all__ = ["GroupFloats"]

MODELOPT = "0.47.0"  # whose bytes and config these are
_CT, _MODELOPT, _MLX = "compressed-tensors", "ModelOpt", "MLX"
_GPT_OSS = "gpt-oss"
_NOTHING = memoryview(bytearray())
_F32 = struct.Struct("<f")
_LARGEST_NVFP4 = 2688.0  # 448, the largest E4M3, times 6


@dataclass(frozen=True)
class _Way:
    """What a library makes of a kind.

    Attributes
    ----------
    code, rule : str
        As `_core.QUANTIZERS` and `_core.RULES` name them.
    codes, second : str
        What it calls the codes and the second scale, behind the weight's name.
    format : str
        How 4-bit codes are decoded: a row of `FORMATS`.
    layout : str
        What its config calls it.
    """

    code: str
    rule: str
    codes: str = ""
    second: str = ""
    format: str = ""
    layout: str = ""


_WAYS = {
    ("NVFP4", _CT): _Way(
        "E2M1", "nv divided", "_packed", "_global_scale", "ct-nvfp4", "nvfp4-pack-quantized"
    ),
    ("MXFP4", _CT): _Way("E2M1", "mx", "_packed", "", "mxfp4", "mxfp4-pack-quantized"),
    ("MXFP8", _CT): _Way("F8_E4M3", "mx", layout="mxfp8-quantized"),
    ("NVFP4", _MODELOPT): _Way(
        "E2M1", "nv multiplied", "", "_scale_2", "modelopt-nvfp4", "W4A16_NVFP4"
    ),
    ("MXFP4", _MODELOPT): _Way("E2M1_DOWN", "mx up", format="mxfp4", layout="mxfp4"),
    ("MXFP8", _MODELOPT): _Way("F8_E4M3", "mx up", layout="MXFP8"),
    ("NVFP4", _MLX): _Way("E2M1_FIRST", "nv alone", format="mlx-nvfp4"),
    ("MXFP4", _MLX): _Way("E2M1_FIRST", "mx own power", format="mxfp4"),
    ("MXFP8", _MLX): _Way("F8_E4M3", "mx own power"),
    ("MXFP4", _GPT_OSS): _Way("E2M1_AWAY", "mx power", format="gpt-oss-mxfp4"),
}

_EXPERTS_TOOLS: dict[str, ExpertsTool] = {_CT: "llm-compressor", _MODELOPT: "ModelOpt"}


@dataclass(frozen=True)
class GroupFloats(BlockwiseEncoding):
    """Floats of 4 or 8 bits with a scale for each 16 or 32 of a row.

    Attributes
    ----------
    kind : str
        `NVFP4`, `MXFP4` or `MXFP8`.
    flavour : str
        Whose bytes they are: `compressed-tensors` or `ModelOpt`; `MlxFloats` has those of
        `MLX`, `GptOss` those of `gpt-oss`.
    """

    kind: str = "NVFP4"
    flavour: str = _CT

    def __post_init__(self) -> None:
        """Check the settings.

        Raises
        ------
        ValueError
            If there are no such ones.
        """
        if (self.kind, self.flavour) not in _WAYS:
            raise ValueError(f"there is no {self.kind!r} of {self.flavour!r}")

    @property
    def _way(self) -> _Way:
        return _WAYS[self.kind, self.flavour]

    @property
    def id(self) -> str:
        """`nvfp4`, `mxfp4`, `mxfp8`, with `-modelopt` behind it where that writes them."""
        return self.kind.lower() + ("-modelopt" if self.flavour == _MODELOPT else "")

    @property
    def code(self) -> str:  # type: ignore[override]
        """The kernel."""
        return self._way.code

    @property
    def rule(self) -> str:
        """How scales come from magnitudes."""
        return self._way.rule

    @property
    def experts_tool(self) -> ExpertsTool | None:
        """The one whose codes they are; MLX and gpt-oss have stacks."""
        return _EXPERTS_TOOLS.get(self.flavour)

    @property
    def tool(self) -> Tool:
        """ModelOpt's, where its codes are."""
        return "ModelOpt" if self.flavour == _MODELOPT else "llm-compressor"

    @property
    def group(self) -> int:
        """Values of a row that share a scale."""
        return 16 if self.kind == "NVFP4" else 32

    @property
    def is_4bit(self) -> bool:
        """Whether a byte has two codes."""
        return self.kind != "MXFP8"

    @property
    def scale_dtype(self) -> DType:
        """E4M3; or U8, which the MX formats keep E8M0 codes in."""
        return DTYPES["F8_E4M3" if self.kind == "NVFP4" else "U8"]

    def block(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return a group."""
        return 1, self.group

    def refuses(self, name: str, shape: tuple[int, ...], dtype: DType) -> str | None:
        """Leave also what the libraries cannot quantise: a row that is not of whole groups."""
        why = BlockwiseEncoding.refuses(self, name, shape, dtype)
        if why is None and self.flavour == _MODELOPT:
            why = modelopt_refusal(name)
        if why is None and shape[1] % self.group:
            return f"rows are not in whole groups of {self.group}"
        return why

    # --- the second scale ----------------------------------------------------------------------

    def survey(self, shape: tuple[int, ...]) -> Survey | None:
        """Look for the largest magnitude of all, where scales have a scale."""
        return self._amax() if self._way.second else None

    def together(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the weights that share a second scale."""
        if not self._way.second:
            return []
        from anamnesis.schemes.fp4.merged import merged, of_one_input

        found = of_one_input if self.flavour == _MODELOPT else merged
        return list(found(tuple(names)))

    def joint(self, found: Sequence[bytes]) -> bytes:
        """Return the largest of several weights' magnitudes; a NaN if one is not finite."""
        magnitudes = [_F32.unpack(one)[0] for one in found]
        is_finite = all(amax == amax for amax in magnitudes)
        return _F32.pack(max(magnitudes) if is_finite else float("nan"))

    def _second(self, found: bytes) -> bytes:
        """Return the second scale, given the largest magnitude; nothing where there is none."""
        if not self._way.second:
            return b""
        return _second_scale(self.flavour, self.dtype.name, found or _F32.pack(1))

    def constants(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> dict[int, bytes]:
        """Return the second scale.

        Raises
        ------
        UnsupportedError
            If the survey found an infinity or a NaN; or nothing but zeros, or numbers next to
            that, which ModelOpt makes NaNs of.
        """
        second = self._second(found)
        if not second:
            return {}
        (number,) = _F32.unpack(second)
        if number != number:
            raise not_finite(name, self.id)
        if number == 0:
            raise UnsupportedError(
                f"{name}: all of it is 0, or next to that, which {self.flavour} has no scale for; "
                "exclude this weight, so that it stays as it is"
            )
        return {2: second}

    # --- codes ---------------------------------------------------------------------------------

    def parts(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> tuple[Part, ...]:
        """Return codes, scales, and the second scale if there is one."""
        rows, cols = shape
        way = self._way
        dtype, width = ("U8", cols // 2) if self.is_4bit else (way.code, cols)
        made = (
            Part(name + way.codes, DTYPES[dtype], (rows, width)),
            Part(f"{name}_scale", self.scale_dtype, (rows, cols // self.group)),
        )
        if not way.second:
            return made
        lone = (1,) if self.flavour == _CT else ()
        return (*made, Part(name + way.second, DTYPES["F32"], lone))

    def extents(self, shape: tuple[int, ...], band: Band) -> tuple[Extent, ...]:
        """Return codes and scales of some rows, and nothing of the second scale."""
        n = band.stop - band.start
        per_byte = 2 if self.is_4bit else 1
        codes = Extent(band.start // per_byte, n // per_byte)
        scales = Extent(band.start // self.group, n // self.group)
        return (codes, scales, Extent(0, 0)) if self._way.second else (codes, scales)

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        """Encode whole rows.

        Raises
        ------
        UnsupportedError
            If a value is infinite or a NaN.
        """
        errors = _core.quantize(
            _core.SOURCES[self.dtype.name],
            _core.QUANTIZERS[self.code],
            _core.RULES[self.rule],
            values,
            *task.matrix,
            *self.block(task.shape),
            outs[0],
            outs[1],
            _NOTHING,
            self._second(task.found),
            task.measures,
            task.level,
        )
        return task.loss(errors, self.id, why=self.unencodable)

    # --- what others are told ------------------------------------------------------------------

    def declare(self, plain: Sequence[str]) -> dict[str, Any]:
        """Return compressed-tensors' config, or the one that ModelOpt puts into config.json."""
        if self.flavour == _MODELOPT:
            return self.declare_with(Layers(plain, (), {}))
        scale = "float8_e4m3fn" if self.kind == "NVFP4" else "uint8"
        weights = {
            "num_bits": 4 if self.is_4bit else 8,
            "type": "float",
            "symmetric": True,
            "group_size": self.group,
            "strategy": "tensor_group" if self.kind == "NVFP4" else "group",
            "dynamic": False,
            "scale_dtype": f"torch.{scale}",
        }
        return config_of(weights, None, self._way.layout, list(plain))

    def declare_with(self, layers: Layers) -> dict[str, Any]:
        """Return what ModelOpt's `convert_hf_quant_config_format` gives, where it is its own."""
        if self.flavour != _MODELOPT:
            return BlockwiseEncoding.declare_with(self, layers)
        weights = {"dynamic": False, "num_bits": 4, "type": "float", "group_size": self.group}
        groups = {"group_0": {"weights": weights, "targets": ["Linear"]}}
        return {
            **({"config_groups": groups} if self.kind == "NVFP4" else {}),
            "ignore": excluded(layers),
            "quant_algo": self._way.layout,
            "producer": {"name": "modelopt", "version": MODELOPT},
            "quant_method": "modelopt",
        }

    def files(self, layers: Layers) -> dict[str, dict[str, Any]]:
        """Return what ModelOpt's export writes, as its `process_layer_quant_config` has it."""
        if self.flavour != _MODELOPT:
            return {}
        group = {"group_size": self.group} if self.kind != "MXFP4" else {}
        quantization = {
            "quant_algo": self._way.layout,
            "kv_cache_quant_algo": None,
            **group,
            "exclude_modules": excluded(layers),
        }
        producer = {"name": "modelopt", "version": MODELOPT}
        return {"hf_quant_config.json": {"producer": producer, "quantization": quantization}}

    def repack(self, weight: Weight) -> Repack | None:
        """Return the codes of such floats in this layout."""
        from anamnesis.schemes.fp4 import layouts

        return layouts.repack(weight, self, layouts.LAYOUTS[self.id])

    def reopen(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        """Return codes and scales as they are read."""
        if self.is_4bit:
            from anamnesis.schemes.fp4.weight import Fp4Weight

            form = FORMATS[self._way.format]
            return Fp4Weight(name, shape, parts, form, self.group, shape[1])
        from anamnesis.schemes.fp8.weight import Fp8Weight
        from anamnesis.schemes.parts.grid import ScaleGrid

        return Fp8Weight(
            name, shape, parts, ScaleGrid("block", 1, shape[0], shape[1], 1, self.group)
        )


@lru_cache(maxsize=4096)
def _second_scale(flavour: str, dtype: str, found: bytes) -> bytes:
    """Return the second scale of a weight by its largest magnitude: a NaN if that is one.

    `generate_gparam` of compressed-tensors, where torch divides a number by a tensor: each step
    rounds to the weight's dtype, and infinity becomes 1; or ModelOpt's
    `get_weights_scaling_factor_2`.
    """
    import numpy as np  # only here, for the sake of a quick start

    amax = np.frombuffer(found, "<f4")
    with np.errstate(all="ignore"):
        if flavour == _MODELOPT:
            second = amax / np.float32(_LARGEST_NVFP4)
        else:
            own = DTYPES[dtype].numpy()
            least = np.float32(2.0**-14 if dtype == "F16" else 2.0**-126)
            reciprocal = (np.float32(1) / np.maximum(amax, least)).astype(own).astype(np.float32)
            second = (reciprocal * np.float32(_LARGEST_NVFP4)).astype(own).astype(np.float32)
            second = np.where(np.isinf(second), np.float32(1), second)
    return second.astype("<f4").tobytes()
