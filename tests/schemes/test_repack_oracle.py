"""What is repacked, decoded by the libraries whose layout it has: the values that it had before."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from numpy.typing import NDArray
from safetensors.torch import load, load_file, save
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import anamnesis as an
from helpers.fp8_layouts import quiet
from helpers.packed_checkpoints import Awq, Gptq, real_weight

pytestmark = pytest.mark.against(
    "compressed-tensors, GPTQModel, AutoAWQ, gguf-py, transformers, comfy-kitchen"
)

State = dict[str, torch.Tensor]
GENERATOR = torch.Generator().manual_seed(16)


def raw(*shape: int) -> torch.Tensor:
    return torch.randint(0, 256, shape, generator=GENERATOR).to(torch.uint8)


def repacked(state: State, target: str) -> tuple[an.Model, State]:
    """A model of one weight, and the tensors that it is repacked as."""
    model = an.parse(save(state))
    out = io.BytesIO()
    assert model.convert(out, target).repacked
    return model, load(out.getvalue())


def compressed_tensors(state: State, name: Any, **args: Any) -> torch.Tensor:
    """compressed-tensors' own values, in float32 as it gives that to float32 scales."""
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(dynamic=False, **args))
    compressor = BaseCompressor.get_value_from_registry(name)
    own = {key.removeprefix("a."): tensor for key, tensor in state.items()}
    result: torch.Tensor = compressor.decompress(own, scheme)["weight"]
    return result


def values(model: an.Model, name: str = "a.weight") -> NDArray[np.float32]:
    return model[name].numpy(dtype="f32")


def test_modelopts_nvfp4_in_compressed_tensors() -> None:
    codes = raw(64, 64) & 0x77  # no code 8
    state = {
        "a.weight": codes,
        "a.weight_scale": (raw(64, 8) % 126).view(torch.float8_e4m3fn),
        "a.weight_scale_2": torch.tensor(1 / 512),
    }
    model, made = repacked(state, "nvfp4")
    args = {"num_bits": 4, "type": "float", "group_size": 16, "strategy": "tensor_group"}
    found = compressed_tensors(made, "nvfp4-pack-quantized", **args)
    assert quiet(found.float()) == values(model).tobytes()


def test_modelopts_nvfp4_in_comfyui() -> None:
    eager = pytest.importorskip("comfy_kitchen.backends.eager.quantization")
    state = {
        "a.weight": raw(64, 64) & 0x77,  # no code 8
        "a.weight_scale": (raw(64, 8) % 126).view(torch.float8_e4m3fn),
        "a.weight_scale_2": torch.tensor(1 / 512),
    }
    model, made = repacked(state, "comfy-nvfp4")
    scales = made["a.weight_scale_2"], made["a.weight_scale"]
    found = eager.dequantize_nvfp4(made["a.weight"], *scales, torch.float32)
    assert quiet(found) == values(model).tobytes()


def test_mlxs_mxfp4_in_compressed_tensors_and_gpt_oss() -> None:
    codes = raw(2, 32, 64)
    state = {"a.weight": codes.view(torch.uint32), "a.scales": raw(2, 32, 4) % 200 + 20}
    model, made = repacked(state, "mxfp4")
    args = {"num_bits": 4, "type": "float", "group_size": 32, "strategy": "group"}
    one = {k: v[0] for k, v in made.items()}
    found = compressed_tensors(one, "mxfp4-pack-quantized", **args)
    assert quiet(found.bfloat16()) == model["a.weight"].numpy(dtype="bf16")[0].tobytes()
    model, made = repacked(state, "gptoss-mxfp4")
    turned = convert_moe_packed_tensors(made["a_blocks"], made["a_scales"], dtype=torch.float32)
    assert quiet(turned.transpose(1, 2).contiguous()) == values(model).tobytes()


@pytest.mark.parametrize("kind", ["MXFP4", "NVFP4"])
def test_gguf_py_reads_blocks_of_mlx(kind: str, tmp_path: Path) -> None:
    """gguf-py has +0 of code 8, as ggml."""
    codes = raw(32, 64) & 0x77
    group = {"MXFP4": 32, "NVFP4": 16}[kind]
    scales = raw(32, 128 // group) % 126
    model = an.parse(save({"a.weight": codes.view(torch.uint32), "a.scales": scales}))
    check_gguf(model, f"gguf-{kind.lower()}", tmp_path)


def check_gguf(model: an.Model, target: str, folder: Path) -> None:
    model.convert(folder / "a.gguf", target)
    reader = gguf.GGUFReader(folder / "a.gguf")
    (tensor,) = reader.tensors
    found = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    assert np.ascontiguousarray(found, np.float32).tobytes() == values(model).tobytes()


@pytest.mark.parametrize("sym", [False, True])
def test_gptqs_words_in_compressed_tensors_and_awq(sym: bool) -> None:
    """Without act-order, which this compressed-tensors does not read any more."""
    case = Gptq(4, 64, sym=sym)
    state = case.pack(real_weight())
    exact = case.dequantize(state, torch.float32)
    stored = {f"a.{name}": tensor for name, tensor in state.items()}
    _, made = repacked(stored, "int4")
    made = {**made, "a.weight_scale": made["a.weight_scale"].float()}
    args = {"num_bits": 4, "type": "int", "group_size": 64, "strategy": "group"}
    found = compressed_tensors(made, "pack-quantized", symmetric=sym, **args)
    assert ("a.weight_zero_point" in made) != sym
    assert torch.equal(found, exact)
    _, made = repacked(stored, "awq-4bit")
    own = {name.removeprefix("a."): tensor for name, tensor in made.items()}
    assert torch.equal(Awq(64).dequantize(own, torch.float32), exact)


def test_awqs_words_in_gptqmodel() -> None:
    case = Awq(32, sym=True)
    state = case.pack(real_weight())
    exact = case.dequantize(state, torch.float32)
    _, made = repacked({f"a.{name}": tensor for name, tensor in state.items()}, "gptq-4bit")
    own = {name.removeprefix("a."): tensor for name, tensor in made.items()}
    assert torch.equal(Gptq(4, 32).dequantize(own, torch.float32), exact)


def test_q4_0(tmp_path: Path) -> None:
    """compressed-tensors' symmetric codes, which gguf-py then reads, and GPTQModel again."""
    case = Gptq(4, 32, sym=True)
    state = case.pack(real_weight())
    exact = case.dequantize(state, torch.float32)
    _, made = repacked({f"a.{name}": tensor for name, tensor in state.items()}, "int4")
    model = an.parse(save(made))
    check_gguf(model, "gguf-q4_0", tmp_path)
    assert values(model).tobytes() == exact.numpy().tobytes()
    with an.parse(tmp_path / "a.gguf") as blocks:
        blocks.convert(tmp_path / "again.safetensors", "gptq-4bit")
    tensors = load_file(tmp_path / "again.safetensors")
    own = {name.removeprefix("a."): tensor for name, tensor in tensors.items()}
    assert {k: v.tolist() for k, v in own.items()} == {k: v.tolist() for k, v in state.items()}


def opened(folder: Path, state: State, **config: Any) -> an.Model:
    """A model whose config settles what shapes leave open."""
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(save(state))
    (folder / "config.json").write_text(json.dumps(config))
    return an.parse(folder)


def half(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=GENERATOR).half()


def test_mlxs_affine_codes_in_q4_1(tmp_path: Path) -> None:
    state = {"a.weight": raw(32, 32).view(torch.uint32)}
    state |= {"a.scales": half(32, 2), "a.biases": half(32, 2)}
    told = {"bits": 4, "group_size": 32}
    check_gguf(opened(tmp_path / "in", state, quantization=told), "gguf-q4_1", tmp_path)


def test_int8_in_q8_0_and_packed(tmp_path: Path) -> None:
    """compressed-tensors' codes, which gguf-py reads, and compressed-tensors again."""
    state = {"a.weight": raw(32, 64).view(torch.int8), "a.weight_scale": half(32, 1)}
    method = {"quant_method": "compressed-tensors"}
    model = opened(tmp_path / "in", state, quantization_config=method)
    check_gguf(model, "gguf-q8_0", tmp_path)
    with an.parse(tmp_path / "a.gguf") as blocks:
        blocks.convert(tmp_path / "packed.safetensors", "int8-packed")
    made = load_file(tmp_path / "packed.safetensors")
    made["a.weight_scale"] = made["a.weight_scale"].float()
    args = {"num_bits": 8, "type": "int", "group_size": 32, "strategy": "group"}
    found = compressed_tensors(made, "pack-quantized", **args)
    assert found.numpy().tobytes() == values(model).tobytes()
