"""Each encoding by its name: a weight of F16 in a file in memory, written to another one."""

from __future__ import annotations

import io
import json
from math import prod

import numpy as np

import anamnesis as an

from .figures import best_time, figure, skipped_if_missing

ROWS, COLS = 1024, 4096
WRITTEN = (
    *("fp8-block", "fp8-block-ue8m0", "fp8-block-ct", "fp8-channel", "fp8-tensor"),
    *("fp8-tensor-ct", "fp8-block-modelopt", "fp8-channel-modelopt", "int8", "int4", "int4-asym"),
    *("nvfp4", "nvfp4-modelopt", "mxfp4", "mxfp4-modelopt", "mxfp8", "mxfp8-modelopt"),
    *("bnb-nf4", "bnb-nf4-nested", "bnb-fp4", "bnb-fp4-nested", "bnb-int8"),
    *(f"mlx-{bits}bit" for bits in (2, 3, 4, 5, 6, 8)),
    *("mlx-mxfp4", "mlx-nvfp4", "mlx-mxfp8", "gptoss-mxfp4", "gptq-4bit", "gptq-8bit", "awq-4bit"),
    *("fp8-tensor-modelopt", "fp8-tensor-mistral", "comfy-int8", "comfy-int8-tensor"),
    *("comfy-fp8", "comfy-mxfp8", "comfy-nvfp4", "comfy-int8-convrot"),
    *("comfy-convrot-w4a4", "comfy-convrot-w4a8", "comfy-convrot-w6a8"),
    *("gguf-nvfp4", "gguf-mxfp4"),
    *("gguf-q4_0", "gguf-q4_1", "gguf-q8_0", "gguf-tq1_0", "gguf-tq2_0", "int8-packed"),
)


def weight_file(name: str) -> bytes:
    """Return a safetensors file of a weight that suits an encoding."""
    shapes: dict[str, tuple[int, ...]] = {"model.layers.0.mlp.up_proj.weight": (ROWS, COLS)}
    if name.startswith("gptoss"):
        experts = "model.layers.0.mlp.experts"
        shapes = {
            f"{experts}.gate_up_proj": (2, ROWS // 2, COLS),
            f"{experts}.gate_up_proj_bias": (2, COLS),
            f"{experts}.down_proj": (2, COLS // 2, ROWS // 2),
        }
    header, data = {}, b""
    for of, shape in shapes.items():
        values = np.random.default_rng(1).standard_normal(prod(shape), np.float32)
        begin, data = len(data), data + values.astype("<f2").tobytes()
        header[of] = {"dtype": "F16", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def ternary_file() -> bytes:
    """Return a safetensors file of BitNet's codes, which no encoding makes."""
    name = "model.layers.0.mlp.up_proj.weight"
    quarters = np.random.default_rng(1).integers(0, 3, (4, ROWS // 4, COLS), np.uint8)
    packed = quarters[0] | quarters[1] << 2 | quarters[2] << 4 | quarters[3] << 6
    n, config = packed.size, {"quant_method": "bitnet", "linear_class": "autobitlinear"}
    header = {
        "__metadata__": {"quantization_config": json.dumps(config)},
        name: {"dtype": "U8", "shape": packed.shape, "data_offsets": [0, n]},
        f"{name}_scale": {"dtype": "F32", "shape": [1], "data_offsets": [n, n + 4]},
    }
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + packed.tobytes() + np.float32(0.375).tobytes()


def converted(model: an.Model, name: str) -> an.Model:
    """Return a model as it is written by name, on one thread."""
    out = io.BytesIO()
    model.convert(out, name, threads=1)
    return an.parse(out.getvalue())


class Write:
    """From file to file, both in memory."""

    params = WRITTEN
    param_names = ("encoding",)

    def setup(self, encoding: str) -> None:
        with skipped_if_missing():
            from anamnesis.schemes.encodings import TAKING

            takes = TAKING[encoding].takes if encoding in TAKING else ""
            is_ternary = takes == "bitnet"
            self.model = an.parse(ternary_file() if is_ternary else weight_file(encoding))
            try:
                if takes and not is_ternary:
                    self.model = converted(self.model, takes)
                converted(self.model, encoding)
            except (ValueError, an.UnsupportedError) as missing:
                raise NotImplementedError(encoding) from missing

    @figure("write in an encoding: time", "ns/element")
    def track_time(self, encoding: str) -> float:
        return 1e9 * best_time(lambda: converted(self.model, encoding)) / (ROWS * COLS)
