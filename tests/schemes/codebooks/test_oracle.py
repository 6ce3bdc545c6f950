"""AQLM and VPTQ beside what their libraries' own torch decoders make of the same tensors."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from importlib.metadata import distribution
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import anamnesis as an
from anamnesis.base.levels import supported_levels
from helpers.fp8_layouts import quiet

os.environ["AQ_USE_JIT"] = "0"  # of AQLM's decoder

State = dict[str, torch.Tensor]
OUTPUTS: dict[Any, Any] = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def module_of(package: str, path: str) -> ModuleType:
    """A file of a package by itself: the package looks for a GPU."""
    file = next(f for f in distribution(package).files or () if str(f) == path)
    name = path.removesuffix(".py").replace("/", ".")
    spec = importlib.util.spec_from_file_location(name, str(file.locate()))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def write(folder: Path, state: State, config: Any) -> Path:
    save_file({f"a.{k}": v.contiguous() for k, v in state.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"quantization_config": config}))
    return folder


def check(folder: Path, want: torch.Tensor) -> None:
    with an.parse(folder) as model:
        assert not model.problems
        tensor = model["a.weight"]
        assert tensor.shape == tuple(want.shape)
        for level in supported_levels():
            for output, dtype in OUTPUTS.items():
                found = tensor.numpy(output, level=level)
                assert found.tobytes() == quiet(want.to(dtype)), (output, level)
        some = tensor[want.shape[0] // 3 :, want.shape[1] // 3 :]
        assert some.tobytes() == quiet(want[want.shape[0] // 3 :, want.shape[1] // 3 :])


def floats(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Of any bits: NaNs, infinities and both zeros among them."""
    generator = torch.Generator().manual_seed(shape[-1])
    made = torch.randn(shape, generator=generator).to(dtype)
    for i, value in enumerate((0.0, -0.0, float("inf"), float("nan"), 6e-5)):
        made.view(-1)[i * 3 :: 41] = value
    return made


@pytest.mark.against("aqlm")
@pytest.mark.parametrize("bands", ["usual", "small"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(
    ("books", "shape"),
    [
        ((2, 256, 1, 8), (24, 12)),
        ((1, 65536, 1, 8), (9, 20)),
        ((1, 1024, 1, 8), (40, 5)),
        ((4, 16, 2, 4), (8, 16)),
        ((3, 128, 3, 8), (5, 9)),
    ],
    ids=str,
)
def test_aqlm(
    books: tuple[int, ...],
    shape: tuple[int, int],
    dtype: torch.dtype,
    bands: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    library = module_of("aqlm", "aqlm/utils.py")
    bits = books[1].bit_length() - 1
    generator = torch.Generator().manual_seed(books[1])
    codes = torch.randint(0, books[1], (*shape, books[0]), generator=generator)
    state = {
        "codes": library.pack_int_data(codes.clone(), bits),
        "codebooks": floats(books, dtype),
        "scales": floats((shape[0], 1, 1, 1), dtype),
    }
    unpacked = library.unpack_int_data(state["codes"], bits)
    want = library._dequantize_weight(unpacked, state["codebooks"].float(), state["scales"].float())
    if bands == "small":
        request.getfixturevalue("small_bands")
    check(write(tmp_path, state, {"quant_method": "aqlm"}), want)


@pytest.mark.against("aqlm")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "books", [(1, 256, 1, 8), (2, 256, 1, 8), (3, 128, 3, 8), (8, 16, 2, 4), (2, 64, 1, 1)], ids=str
)
def test_aqlm_in_its_own_dtype(books: tuple[int, ...], dtype: torch.dtype, tmp_path: Path) -> None:
    """Sums tie often: they are rounded as torch's `embedding_bag` rounds them."""
    library = module_of("aqlm", "aqlm/utils.py")
    bits = books[1].bit_length() - 1
    generator = torch.Generator().manual_seed(books[1])
    codes = torch.randint(0, books[1], (64, 40, books[0]), generator=generator)
    state = {
        "codes": library.pack_int_data(codes.clone(), bits),
        "codebooks": floats(books, dtype),
        "scales": floats((64, 1, 1, 1), dtype),
    }
    want = library._dequantize_weight(codes, state["codebooks"], state["scales"])
    with an.parse(write(tmp_path, state, {"quant_method": "aqlm"})) as model:
        for output in OUTPUTS:
            found = model["a.weight"].numpy(output, math="reference")
            assert found.tobytes() == quiet(want.to(OUTPUTS[output])), output


VPTQ = [
    # rows, columns, groups, rows of a vector, entries, entries of the correction, packed
    (37, 72, 1, 6, 64, 16, True),
    (64, 96, 2, 8, 256, 256, True),
    (24, 40, 1, 4, 4096, 0, True),
    (30, 33, 3, 5, 100, 7, True),
    (40, 64, 1, 12, 65536, 65536, True),
    (37, 72, 2, 6, 64, 16, False),
]


@pytest.mark.against("vptq")
@pytest.mark.parametrize("bands", ["usual", "small"])
@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("perm", [True, False])
@pytest.mark.parametrize("case", VPTQ, ids=str)
def test_vptq(
    case: tuple[Any, ...],
    perm: bool,
    norm: bool,
    bands: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    pack, dequant = vptq_library()
    rows, cols, groups, length, entries, more, packed = case
    vectors, per_group = -(-rows // length), cols // groups
    generator = torch.Generator().manual_seed(rows)
    shape = (groups, vectors, per_group)
    main = torch.randint(0, entries, shape, generator=generator)
    rest = torch.randint(0, more or 1, shape, generator=generator)
    bits, more_bits = (max(n - 1, 0).bit_length() for n in (entries, more))
    state = {"centroids.weight": floats((groups, entries * length), torch.float16)}
    if more:
        state["res_centroids.weight"] = floats((groups, more * length), torch.float16)
    if packed:
        halves = (main, rest) if more else (main,)
        first, *second = (half.to(torch.uint16).view(torch.int16) for half in halves)
        corrections = second[0] if second else None
        state["indices"] = pack(first, bits, corrections, more_bits, torch.uint16)
    else:
        state["indices"] = main.to(torch.uint16).view(torch.int16)
        state["res_indices"] = rest.to(torch.uint16).view(torch.int16)
    if perm:
        order = torch.randperm(cols, generator=generator)
        state["perm"] = order.to(torch.int16) if packed else order
    if norm:
        state["weight_scale"] = floats((cols,), torch.float16)
        state["weight_bias"] = floats((cols,), torch.float16).flip(0)
    wide = {k: v.float() if v.is_floating_point() else v for k, v in state.items()}
    unpacked = None if packed else state["res_indices"]
    want = dequant(
        wide["indices"],
        wide["centroids.weight"].view(groups, entries, length),
        None,
        None,
        unpacked,
        wide.get("res_centroids.weight"),
        # As the layer has it: what it views as 16 bits is as wide.
        state["perm"].to(torch.int16) if perm else None,
        wide.get("weight_scale"),
        wide.get("weight_bias"),
        packed,
        False,
        bool(more),
        perm,
        norm,
        entries,
        0,
        more,
        -rows % length,
        0,
        groups,
        per_group,
        0,
        length,
        0,
    )
    layer = {"vector_lens": [-1, length], "in_features": cols, "out_features": rows}
    if bands == "small":
        request.getfixturevalue("small_bands")
    config = {"quant_method": "vptq", "config_for_layers": {"a": layer}}
    check(write(tmp_path, state, config), want.contiguous())


def vptq_library() -> tuple[Any, Any]:
    """Its packer and its decoder, without what else these files import."""
    for package in ("vptq", "vptq.utils", "vptq.ops", "tqdm"):
        sys.modules.setdefault(package, ModuleType(package))
    for name, of in (("sentence_transformers.SentenceTransformer", "SentenceTransformer"),):
        sys.modules.setdefault(name.partition(".")[0], ModuleType("sentence_transformers"))
        sys.modules.setdefault(name, ModuleType(name))
        setattr(sys.modules[name], of, object)
    pack = module_of("vptq", "vptq/utils/pack.py")
    return pack.pack_index, module_of("vptq", "vptq/ops/quant_gemm.py").dequant
