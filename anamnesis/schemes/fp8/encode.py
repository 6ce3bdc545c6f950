"""8-bit floats with a scale for each block, each row, or in all, as two libraries write them.

    weight      F8_E4M3 | F8_E5M2 [..., rows, cols]
    its scales  F32 | F8_E8M0, or the weight's own dtype [..., grid rows, grid cols]

"transformers" is `Fp8Quantize` of its integrations/finegrained_fp8.py, in float32;
"compressed-tensors" is its min-max calibration and compression, as blockwise.py has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.blockwise_encoding import BlockwiseEncoding
from anamnesis.schemes.core.encoding import Loss, Task, not_finite
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.says.compressed_tensors import config_of, input_arguments, weight_arguments
from anamnesis.schemes.says.linear import Tool, with_head
from anamnesis.schemes.says.stacks import Stacks, is_of_an_expert, is_stack, stacks_of

if TYPE_CHECKING:
    from anamnesis.schemes.core.layout import ExpertsTool

__all__ = ["Fp8"]

_ZERO = bytes(4)  # a scale, which is small enough to be none
_NANS = (b"\x7f", b"\xff")  # as torch makes them
_LARGEST = {"E4M3": 448.0, "E5M2": 57344.0}
_LARGEST_F32 = 2.0**128


@dataclass(frozen=True)
class Fp8(BlockwiseEncoding):
    """8-bit floats with a scale for each block, each row ("channel") or in all ("tensor").

    Attributes
    ----------
    kind : str
        `block`, `channel` or `tensor`.
    flavour : str
        Whose bytes they are: `transformers` (F32 scales under `weight_scale_inv`; it has no
        `channel`) or `compressed-tensors` (scales in the weight's dtype under `weight_scale`).
    format : str
        `E4M3`, or `E5M2` in the arithmetic of transformers, which has only the former.
    block_size : (int, int)
        Rows and columns that share a scale.
    powers_of_two : bool
        Whether transformers' scales are powers of two, stored as E8M0 (`scale_fmt` "ue8m0").
    """

    kind: str = "block"
    flavour: str = "transformers"
    format: str = "E4M3"
    block_size: tuple[int, int] = (128, 128)
    powers_of_two: bool = False

    def __post_init__(self) -> None:
        """Check that the settings go together.

        Raises
        ------
        ValueError
            If they do not.
        """
        is_ct = self.flavour == "compressed-tensors"
        if self.kind not in ("block", "channel", "tensor"):
            raise ValueError(f"kind must be block, channel or tensor; got {self.kind!r}")
        if not is_ct and self.flavour != "transformers":
            raise ValueError(f"there is no flavour {self.flavour!r}")
        if self.format not in ("E4M3", "E5M2"):
            raise ValueError(f"format must be E4M3 or E5M2; got {self.format!r}")
        if is_ct and (self.powers_of_two or self.format != "E4M3"):
            raise ValueError("compressed-tensors has neither E5M2 nor powers of two as scales")
        if min(self.block_size) < 1:
            raise ValueError(f"block_size must be positive; got {self.block_size}")

    @property
    def id(self) -> str:
        """`fp8-block`, `fp8-channel`, `fp8-tensor`; with what is not usual behind it.

        That is `-ct` where compressed-tensors writes them (a channel's are always its own, or
        `-float`), `-64x64` for blocks other than 128x128, `-e5m2`, `-ue8m0`.
        """
        size = "x".join(map(str, self.block_size)) if self.kind == "block" else "128x128"
        is_ct = self.flavour == "compressed-tensors"
        suffixes = {
            "-ct": is_ct and self.kind != "channel",
            "-float": not is_ct and self.kind == "channel",
            f"-{size}": size != "128x128",
            "-e5m2": self.format == "E5M2",
            "-ue8m0": self.powers_of_two,
        }
        return f"fp8-{self.kind}" + "".join(s for s, is_there in suffixes.items() if is_there)

    @property
    def code(self) -> str:  # type: ignore[override]
        """The kernel of the format."""
        return f"F8_{self.format}"

    @property
    def rule(self) -> str:
        """By division, in compressed-tensors; else by a reciprocal."""
        if self.flavour == "compressed-tensors":
            return "divided"
        return "power of two" if self.powers_of_two else "reciprocal"

    @property
    def has_one_scale(self) -> bool:
        """Whether one scale is for all of a weight."""
        return self.kind == "tensor"

    @property
    def tool(self) -> Tool:
        """The one whose bytes they are."""
        return "transformers" if self.flavour == "transformers" else "llm-compressor"

    @property
    def experts_tool(self) -> ExpertsTool | None:
        """That of compressed-tensors; transformers has stacks."""
        return "llm-compressor" if self.flavour == "compressed-tensors" else None

    def block(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return the block's size, a row's, or that of all."""
        rows, cols = shape[-2:]
        if self.kind == "block":
            return min(self.block_size[0], rows), min(self.block_size[1], cols)
        return (1, cols) if self.kind == "channel" else (rows, cols)

    def refuses(self, name: str, shape: tuple[int, ...], dtype: DType) -> str | None:
        """Leave also what transformers leaves: a matrix that is not of whole blocks."""
        is_own = self.kind == "block" and self.flavour == "transformers"
        if is_own and is_stack(name, shape) and not name.endswith(".weight"):
            why = None if dtype.kind == "float" else dtype.name
        else:
            why = BlockwiseEncoding.refuses(self, name, shape, dtype)
        return why or (self._refuses_blocks(shape) if is_own else None)

    def _refuses_blocks(self, shape: tuple[int, ...]) -> str | None:
        if shape[-2] % self.block_size[0] or shape[-1] % self.block_size[1]:
            return "not in whole blocks of " + "x".join(map(str, self.block_size))
        return "no values" if 0 in shape else None

    def leaves(
        self, shapes: Mapping[str, tuple[int, ...]], config: Mapping[str, Any]
    ) -> Mapping[str, str]:
        """Return also the stacks of experts that transformers' `FP8Experts` does not take.

        That is one class for all of a module's, so that they stay as they are together.
        """
        found = dict(BlockwiseEncoding.leaves(self, shapes, config))
        if self.kind != "block" or self.flavour != "transformers":
            return found
        for stacks in stacks_of(shapes).values():
            why = self._why_not_experts(stacks, shapes)
            found.update(dict.fromkeys(stacks.names, why) if why else {})
        return found

    def _why_not_experts(self, stacks: Stacks, shapes: Mapping[str, tuple[int, ...]]) -> str | None:
        if stacks.has_biases:
            return "experts with biases"
        if stacks.orientation != "linear":
            told = stacks.orientation == "transposed"
            return f"experts that {'are' if told else 'may be'} [in, out]"
        for name in stacks.names:
            why = self._refuses_blocks(shapes[name])
            if why is None and name.endswith("gate_up_proj"):
                halves = shapes[name][-2] >= 2 * self.block_size[0]
                why = None if halves else "experts whose gate and up projections share blocks"
            if why:
                return why
        return None

    def parts(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> tuple[Part, ...]:
        """Return the codes and the scales.

        transformers saves the one scale of a weight as [1, 1], and does not load it so, for its
        layers have a scalar. It is a scalar here; but [1, 1] of single experts, whose scales
        transformers stacks to [experts, 1, 1].
        """
        is_ct = self.flavour == "compressed-tensors"
        lone: tuple[int, ...] = (1,) if is_ct else (1, 1) if is_of_an_expert(name) else ()
        scale = f"{name}_scale" if is_ct else f"{name}_scale_inv"
        grid = lone if self.has_one_scale else (*shape[:-2], *self.grid(shape[-2:]))
        return Part(name, DTYPES[self.code], shape), Part(scale, self.scale_dtype, grid)

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        """Encode whole rows; any values, where one scale is for all.

        Raises
        ------
        UnsupportedError
            If a value is infinite or a NaN, or becomes one: the reciprocal of a scale is infinite
            where all values are next to nothing, and its product with a zero is none.
        """
        loss = BlockwiseEncoding.encode(self, values, task, outs)
        if self.rule == "reciprocal":
            scales = self.constants("", (), task.found)[1] if self.has_one_scale else outs[1]
            if _ZERO in bytes(scales):
                self._check_codes(task, bytes(outs[0]))
        return loss

    def _check_codes(self, task: Task, codes: bytes) -> None:
        """Refuse codes that are NaNs, which values that are finite have become.

        Their scale is zero, so that a look at all codes is seldom needed.
        """
        first = min((at for code in _NANS if (at := codes.find(code)) >= 0), default=None)
        if first is None:
            return
        row, col = divmod(task.band.start + first, task.shape[-1])
        row, col = row + task.origin[0], col + task.origin[1]
        rows, cols = self.block_size
        where = {
            "block": f"block [{row // rows}, {col // cols}]",
            "channel": f"row {row}",
            "tensor": "it",
        }
        least = _LARGEST[self.format] / _LARGEST_F32
        why = f"{where[self.kind]} has zeros, and beside them only values below {least:.2g}"
        raise not_finite("the values", self.id, why)

    def declare(self, plain: Sequence[str]) -> dict[str, Any]:
        """Return transformers' `FineGrainedFP8Config`, or compressed-tensors' config.

        No program reads E5M2 by either, so that its `quant_method` is one that all refuse.
        """
        block = list(self.block_size) if self.kind == "block" else None
        if self.flavour == "compressed-tensors":
            more = {"block_structure": block} if block else {}
            weights = weight_arguments(8, "float", self.kind, **more)
            inputs = (
                input_arguments("float", "group", 128)
                if block
                else input_arguments("float", "token")
            )
            return config_of(weights, inputs, "float-quantized", plain)
        return {
            "quant_method": "fp8" if self.format == "E4M3" else "fp8_e5m2",
            "modules_to_not_convert": with_head(plain),
            "modules_to_convert": None,
            "activation_scheme": "dynamic",
            "weight_block_size": block,
            "dequantize": False,
            "scale_fmt": "ue8m0" if self.powers_of_two else "float",
            "expert_dtype": "fp8",
        }

    def reopen(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        """Return codes and scales as they are read."""
        from anamnesis.schemes.fp8.read import Fp8Weight
        from anamnesis.schemes.parts.grid import ScaleGrid

        if self.has_one_scale:
            grid = ScaleGrid("tensor", 1, 1, prod(shape), 1, max(prod(shape), 1))
        else:
            rows, cols = shape[-2:]
            grid = ScaleGrid(self.kind, prod(shape[:-2]), rows, cols, *self.block(shape))
        return Fp8Weight(name, shape, parts, grid)
