"""Pickled tensors of torchao that are not what they say: refused in one line, by name, or exact."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torchao.prototype.mx_formats.mx_tensor import MXTensor
from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor

import anamnesis as an
from helpers.fp8_layouts import quiet
from helpers.torchao_cases import CASES, dequantized, make

pytestmark = pytest.mark.against("torchao")

NAME = "layers.0.weight"
KINDS = [name for name in CASES if name.count("-") == 0 or name.endswith(("-row", "-second"))]
KINDS += ["int8-groups", "mxfp4-dynamic", "mxfp8-tiled", "intx-4", "float8-static"]


def deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(200):
        value = [value]
    return value


def circle() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


# By name: what an attribute is replaced by.
VALUES: dict[str, Any] = {
    "none": None,
    "true": True,
    "zero": 0,
    "one": 1,
    "negative": -1,
    "huge": 1 << 62,
    "longer": 1 << 400,
    "float": 2.5,
    "nan": float("nan"),
    "complex": 1j,
    "text": "float4_e2m1fn_x2",
    "long text": "x" * 5000,
    "bytes": b"raw",
    "list": [1, 2],
    "zeros": [0, 0],
    "ones": [1, 1],
    "long list": [1] * 1000,
    "tuple": (1, 16),
    "texts": ["a", "b"],
    "dict": {},
    "full dict": {"a": torch.ones(2)},
    "set": {1, 2},
    "deep": deep(),
    "circle": circle(),
    "dtype": torch.float8_e4m3fn,
    "sub-byte dtype": torch.int4,
    "size": torch.Size([4, 16]),
    "device": torch.device("cpu"),
    "layout": torch.strided,
    "number": torch.tensor(1.0),
    "empty tensor": torch.ones(0),
    "bytes tensor": torch.ones(4, 16, dtype=torch.uint8),
    "big tensor": torch.ones(64, 64),
    "parameter": torch.nn.Parameter(torch.ones(4, 4)),
    "sparse": torch.eye(4).to_sparse(),
    "expanded": torch.ones(1).expand(33, 3),
}


def saved(weight: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save({NAME: weight}, buffer)
    return buffer.getvalue()


def check(weight: Any) -> bool:
    """Return whether a weight is read; then it has the library's values, if that has any."""
    with an.parse(saved(weight)) as model:
        if model.problems:
            for error in model.problems.values():
                assert "\n" not in str(error)
                assert NAME.removesuffix("weight") in str(error) or NAME in str(error)
            with pytest.raises(an.AnamnesisError):
                model.remember(io.BytesIO(), "f32")
            return False
        found = model[NAME].numpy("f32")
        try:
            wanted = dequantized(weight, torch.float32)
        except Exception:
            return True  # it fails on what we need not know
        assert found.tobytes() == quiet(wanted)
        return True


@pytest.mark.sampled(3)
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("case", KINDS)
def test_each_attribute_replaced(case: str, value: str) -> None:
    for name in make(case, torch.bfloat16).__dict__:
        weight = make(case, torch.bfloat16)
        weight.__dict__[name] = VALUES[value]
        is_read = check(weight)
        if name in ("qdata", "scale") and not isinstance(VALUES[value], torch.Tensor):
            assert not is_read


@pytest.mark.parametrize("case", KINDS)
def test_each_attribute_missing(case: str) -> None:
    for name in make(case, torch.bfloat16).__dict__:
        weight = make(case, torch.bfloat16)
        del weight.__dict__[name]
        with an.parse(saved(weight)) as model:
            if name in ("qdata", "scale", "block_size") and not (
                name == "block_size" and case.startswith("float8")
            ):
                (error,) = model.problems.values()
                assert NAME in str(error)
                assert name in str(error)


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("case", KINDS)
def test_one_attribute_more(case: str, value: str) -> None:
    weight = make(case, torch.bfloat16)
    weight.__dict__["transform"] = VALUES[value]
    assert not check(weight)
    weight = make(case, torch.bfloat16)
    weight._is_param = True
    assert check(weight)


def reshaped(tensor: torch.Tensor) -> list[torch.Tensor]:
    """What may pass for a tensor, and is another one."""
    rows = tensor.reshape(-1, tensor.shape[-1]) if tensor.ndim else tensor.reshape(1, 1)
    return [
        rows.reshape(-1),
        rows.reshape(1, *rows.shape),
        rows.t(),
        rows.t().contiguous(),
        rows[:-1],
        rows[:, :-1],
        torch.cat([rows.view(torch.uint8)] * 2).view(rows.dtype),
        rows.view(torch.uint8),
        rows.view(torch.int8),
        rows[:0],
        rows[:1, :1],
        rows[:1].expand_as(rows),
    ]


@pytest.mark.parametrize("part", ["qdata", "scale", "zero_point", "per_tensor_scale"])
@pytest.mark.parametrize("case", KINDS)
def test_misshapen_parts(case: str, part: str) -> None:
    tensor = make(case, torch.bfloat16).__dict__.get(part)
    for other in [] if tensor is None else reshaped(tensor):
        weight = make(case, torch.bfloat16)
        weight.__dict__[part] = other
        check(weight)


@pytest.mark.parametrize("case", KINDS)
def test_parts_that_are_shared_or_swapped(case: str) -> None:
    weight = make(case, torch.bfloat16)
    weight.scale, weight.qdata = weight.qdata, weight.scale
    assert not check(weight)
    weight = make(case, torch.bfloat16)
    weight.scale = weight.qdata
    assert not check(weight)


def test_two_of_one_name() -> None:
    weight = make("float8-row", torch.bfloat16)
    buffer = io.BytesIO()
    torch.save({NAME: weight, "layers.0._weight_qdata": torch.ones(2)}, buffer)
    with pytest.raises(an.ParseError, match="two values would both be called"):
        an.parse(buffer.getvalue())


def test_class_of_an_unknown_name() -> None:
    buffer = io.BytesIO()
    weight = make("float8-row", torch.bfloat16)
    torch.save({NAME: weight}, buffer, _use_new_zipfile_serialization=False)  # no checksums
    raw = buffer.getvalue()
    assert raw.count(b"Float8Tensor\n") == 1
    with pytest.raises(an.DisallowedGlobal, match="Float9Tensor"):
        an.parse(raw.replace(b"Float8Tensor\n", b"Float9Tensor\n"))


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("torchao.quantization", "IntxOpaqueTensor"),
        ("torchao.dtypes.affine_quantized_tensor", "AffineQuantizedTensor"),
        (
            "torchao.quantization.linear_activation_quantized_tensor",
            "LinearActivationQuantizedTensor",
        ),
    ],
)
def test_classes_that_are_not_read(module: str, name: str) -> None:
    """A file of theirs is listed, and stops with the name of the class."""
    weight = make("int8-row", torch.bfloat16)
    stranger = type(name, (type(weight),), {"__module__": module})
    weight.__class__ = stranger
    found = sys.modules.setdefault(module, type(sys)(module))
    before = getattr(found, name, None)
    setattr(found, name, stranger)
    try:
        raw = saved(weight)
    finally:
        setattr(found, name, before)
    with an.parse(raw) as model:
        (error,) = model.problems.values()
        assert NAME in str(error)
        assert f"torchao's {name}" in str(error)
        with pytest.raises(an.UnsupportedError, match=name):
            model.remember(io.BytesIO())
    assert an.scan(raw).verdict == "safe"


VIEWS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda w: w.transpose(-2, -1),
    "t": lambda w: w.t(),
    "rows": lambda w: w[1:5],
    "some rows": lambda w: w.narrow(0, 2, 3),
    "columns": lambda w: w[:, :32],
    "one": lambda w: w[1],
    "detached": lambda w: w.detach(),
    "copied": lambda w: w.to(torch.float32),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("case", CASES)
def test_views(case: str, view: str) -> None:
    """What torchao makes of slices and transposes is exact, or refused."""
    try:
        weight = VIEWS[view](make(case, torch.bfloat16))
        saved(weight)
    except Exception:
        return  # it makes no such view, or cannot save it
    if type(weight) is not torch.Tensor:
        check(weight)


@pytest.mark.parametrize("is_tiled", [False, True])
def test_square_transposed(is_tiled: bool) -> None:
    """Of scales in tiles, no shape tells."""
    values = torch.randn(128, 128)
    for dtype in (torch.float8_e4m3fn, torch.float4_e2m1fn_x2):
        weight = MXTensor.to_mx(values, dtype, 32, is_swizzled_scales=is_tiled)
        assert check(weight)
        assert not check(weight.t())
    weight = NVFP4Tensor.to_nvfp4(values, is_swizzled_scales=is_tiled)
    assert check(weight)
    assert not check(weight.t())
