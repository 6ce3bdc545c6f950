"""exllamav2 on a CPU: its own kernels of weights, emulated, and its own code that packs.

It takes a GPU, and builds itself when it is imported. So its package is only looked for. Its CUDA
files are compiled as C++, over what `tests/c/cuda_emulated.h` has of CUDA, with nothing of them
changed but how kernels are launched. Of its Python files, `cuda:0` becomes `cpu`.
"""

from __future__ import annotations

import ast
import ctypes
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.metadata import distribution
from os import environ
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import torch

from helpers.kernel_calls import PROJECT

__all__ = ["Mix", "State", "mixes", "pack", "reconstruct"]

State = dict[str, torch.Tensor]

_HEADERS = ("cuda_runtime.h", "cuda_fp16.h", "ATen/cuda/CUDAContext.h", "ATen/Tensor.h")
_LAUNCH = re.compile(r"(\w+(?:<\w+>)?)\s*<<<\s*(\w+),\s*(\w+)[^>]*>>>\s*\(([^;]*)\);")
_FLAGS = (
    "-std=c++17",
    "-O1",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-w",
    "-shared",
    "-fPIC",
)


def _package() -> Path:
    """The folder of the package, which is not imported."""
    files = distribution("exllamav2").files or ()
    return Path(next(f for f in files if str(f) == "exllamav2/ext.py").locate()).parent


@cache
def _library() -> Any:
    cuda = _package() / "exllamav2_ext/cuda"
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for header in _HEADERS:
            path = folder / header
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text('#include "cuda_emulated.h"\n')
        for name in ("pack_tensor", "q_matrix"):
            text = (cuda / f"{name}.cu").read_text()
            launched = _LAUNCH.sub(r"emulated_launch(\2, \3, [&] { \1(\4); });", text)
            assert "<<<" not in launched
            (folder / f"{name}.cpp").write_text(launched)
        library = folder / "exllamav2.so"
        compiler = shlex.split(environ.get("CXX", "c++"))
        paths = [f"-I{path}" for path in (folder, PROJECT / "tests/c", cuda)]
        source = PROJECT / "tests/c/exllamav2_emulated.cpp"
        subprocess.run([*compiler, *_FLAGS, *paths, source, "-o", library], check=True)
        return ctypes.CDLL(str(library))


def _at(tensor: torch.Tensor) -> ctypes.c_void_p:
    assert tensor.is_contiguous()
    return ctypes.c_void_p(tensor.data_ptr())


def _pack_rows_4(given: torch.Tensor, out: torch.Tensor) -> None:
    _library().exl2_pack_rows_4(_at(given), _at(out), *given.shape)


def _pack_columns(given: torch.Tensor, out: torch.Tensor, bits: int) -> None:
    assert out.shape[0] == given.shape[0] * bits // 32
    rows, columns = given.shape
    _library().exl2_pack_columns(_at(given), _at(out), rows, out.shape[0], columns, bits)


@cache
def _adaptivegptq() -> ModuleType:
    """Its packing code, on a CPU."""
    path = _package() / "conversion/adaptivegptq.py"
    extension = SimpleNamespace(pack_rows_4=_pack_rows_4, pack_columns=_pack_columns)
    stubs = {
        "exllamav2": SimpleNamespace(),
        "exllamav2.ext": SimpleNamespace(exllamav2_ext=extension, none_tensor=None),
        "exllamav2.util": SimpleNamespace(list_live_tensors=None),
    }
    module = ModuleType("adaptivegptq")
    before = {name: sys.modules.get(name) for name in stubs}
    sys.modules.update(stubs)  # type: ignore[arg-type]
    try:
        text = path.read_text().replace('"cuda:0"', '"cpu"')
        exec(compile(text, str(path), "exec"), vars(module))
    finally:
        for name, old in before.items():
            sys.modules.pop(name)
            if old is not None:
                sys.modules[name] = old
    return module


@cache
def _ext() -> dict[str, Any]:
    """The functions of ext.py that take a weight's tensors to the extension."""
    path = _package() / "ext.py"
    wanted = {"make_group_map_py", "make_q_matrix"}
    tree = ast.parse(path.read_text())
    tree.body = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name in wanted]
    none = torch.empty((1, 1), device="meta")
    extension = SimpleNamespace(make_q_matrix=_make_q_matrix)
    names: dict[str, Any] = {"torch": torch, "none_tensor": none, "ext_c": extension}
    exec(compile(tree, str(path), "exec"), names)
    names["make_group_map"] = names["make_group_map_py"]
    return names


def _make_q_matrix(*arguments: Any) -> torch.Tensor:
    """Take what `ext_c.make_q_matrix` takes, and return what `reconstruct` gives of that."""
    q_weight, q_perm, q_invperm, q_scale, q_scale_max, _, q_group_map = arguments[:7]
    height, width = q_group_map.shape[0] // 2, q_weight.shape[1]
    assert q_perm.shape == q_invperm.shape == (height,)
    assert q_scale.shape == (q_scale_max.shape[0], width // 8)
    out = torch.zeros((height, width), dtype=torch.half)
    given = map(_at, arguments[:7])
    _library().exl2_reconstruct(height, width, q_scale.shape[0], *given, _at(out))
    return out


def reconstruct(state: State) -> torch.Tensor:
    """Return the weight that tensors are of, [out, in] in half floats, as exllamav2 loads them."""
    loaded = {name: tensor.clone() for name, tensor in state.items() if name != "bias"}
    # As load_weight of its module.py has it.
    loaded["q_perm"] = torch.argsort(loaded["q_invperm"]).to(torch.int)
    made = _ext()["make_q_matrix"](loaded, None)
    assert isinstance(made, torch.Tensor)
    return made.T.contiguous()


class Mix(NamedTuple):
    """How many bits which shares of the in features have, as its `QParams` say it."""

    group_size: dict[int, int]
    bits: list[int]
    shares: list[float]


def mixes() -> list[Mix]:
    """All that its converter chooses from."""
    names: dict[str, Any] = {}
    path = _package() / "conversion/qparams.py"
    exec(compile(path.read_text(), str(path), "exec"), names)
    chosen = [p for some in (*names["qparams_attn"], *names["qparams_mlp"]) for p in some]
    chosen += names["qparams_headoptions"].values()
    by_words = {p.get_desc(): Mix(p.group_size, p.bits, p.bits_prop) for p in chosen}
    return list(by_words.values())


def pack(
    mix: Mix,
    shape: tuple[int, int],
    *,
    maxima: torch.Tensor | None = None,
    codes: Callable[[int], int] | None = None,
    bias: bool = False,
) -> State:
    """Return tensors that exllamav2's own `AdaptiveGPTQ.pack` makes of random codes and scales.

    Parameters
    ----------
    mix : Mix
    shape : (int, int)
        Out features and in features.
    maxima : tensor, optional
        The largest scales, taken by groups in turn; by default small ones.
    codes : function, optional
        Takes the bits of a group, and returns the code that all its values have.
    bias : bool
        Whether the layer has one.
    """
    torch.manual_seed(shape[1])
    n_out, n_in = shape
    layer = torch.nn.Linear(n_in, n_out, bias, dtype=torch.half)
    packer = _adaptivegptq().AdaptiveGPTQ(layer)
    packer.configure(mix.group_size, mix.bits, mix.shares)
    bits = [b for b, n in zip(mix.bits, packer.bits_groups, strict=True) for _ in range(n)]
    drawn = torch.rand(len(bits)) * 0.02 + 1e-4
    if maxima is not None:
        drawn = maxima.repeat(len(bits))[: len(bits)]
    packer.invperm = torch.argsort(torch.randperm(n_in))
    packer.qscale_max = drawn.to(torch.half)
    packer.qgroups = torch.tensor([n for b in bits for n in (b, 0)], dtype=torch.short)
    packer.qscale = torch.randint(1, 17, (len(bits), n_out), dtype=torch.short)
    rows, left = [], n_in
    for b in bits:
        size = (min(mix.group_size[b], left), n_out)
        left -= size[0]
        rows.append(torch.full(size, codes(b)) if codes else torch.randint(0, 1 << b, size))
    packer.qweight = torch.cat(rows).to(torch.short)
    state: State = packer.pack("w", SimpleNamespace(scale_bits=4))
    return {name.removeprefix("w."): tensor.contiguous() for name, tensor in state.items()}
