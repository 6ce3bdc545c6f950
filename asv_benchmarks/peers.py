"""One table: our kernels beside memcpy and the libraries people use, in turns, on one thread.

    python -m asv_benchmarks.peers [--quick] [--turns 5] [--million 64]

GE/s are 1e9 decoded elements a second. memcpy moves as many bytes as the kernel reads and writes
together. Every contestant of a row is run once a turn and its fastest turn counts, in CPU time, so
that a busy machine slows all of them down alike. torch, bitsandbytes, GPTQModel, AutoAWQ and gguf
take part if they are installed, with one thread, and so does ggml's own C, built for this CPU, if
tools/ggml_c.py can get hold of it. gguf and ggml decode to float32, whatever the output. GPTQModel
and AutoAWQ compute in the dtype of the scales, here float32 as the definition has it, and give
[in, out]; their result is rounded to the output and transposed, which makes it the same as ours.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import distribution
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from anamnesis import _core
from anamnesis.base.dtypes import BLOCK_DTYPES, DTYPES
from anamnesis.schemes.core.bands import band_bytes
from asv_benchmarks.benchmarks.encoders import (
    ENCODERS,
    block_numbers,
    encode_blocks_call,
    encode_call,
)
from asv_benchmarks.benchmarks.kernels import (
    CODEBOOKS,
    FP4,
    GRIDS,
    NF4,
    OUTPUTS,
    PackedArrays,
    absmax_call,
    block_call,
    convert_call,
    integers_call,
    item_bytes,
    level_id,
    memcpy_call,
    packed_call,
    plausible_blocks,
    room,
    scaled_call,
)
from asv_benchmarks.benchmarks.tables import block_encoders

Work = Callable[[], object]
Array = npt.NDArray[np.generic]
COLS = 4096
NESTED_BLOCK = 256
HAVE_TORCH = importlib.util.find_spec("torch") is not None
HAVE_BNB = HAVE_TORCH and importlib.util.find_spec("bitsandbytes") is not None
HAVE_GPTQMODEL = HAVE_TORCH and importlib.util.find_spec("gptqmodel") is not None
HAVE_AUTOAWQ = HAVE_TORCH and importlib.util.find_spec("awq") is not None
HAVE_GGUF = importlib.util.find_spec("gguf") is not None
PEERS = {  # by family
    "fp8": ("torch", "numpy"),
    "convert": ("torch", "numpy"),
    "block": ("ggml C", "gguf-py"),
    "absmax": ("bnb",),
    "packed": ("GPTQModel", "AutoAWQ"),
    "integers": (),
    "encode": ("transformers", "bnb"),
    "encode blocks": ("ggml C",),
}


@dataclass(frozen=True)
class Contest:
    """One row of the table: the same job for every contestant."""

    name: str
    out: str
    elements: int
    ours: dict[str, Work]  # by level
    memcpy: Work
    peers: dict[str, Work]


def codes_and_scales(grid: str, rows: int) -> tuple[Array, Array]:
    """Return E4M3 codes and their scales, shaped to be multiplied block by block."""
    rng = np.random.default_rng(1)
    _, block_rows, block_cols = GRIDS[grid]
    block_rows, block_cols = block_rows or rows, block_cols or COLS
    grid_rows, grid_cols = rows // block_rows, COLS // block_cols
    codes = rng.integers(0, 0x7C, (grid_rows, block_rows, grid_cols, block_cols), dtype=np.uint8)
    scales = np.exp2(rng.integers(-15, -3, (grid_rows, 1, grid_cols, 1))).astype(np.float32)
    return codes, scales


def numpy_fp8(codes: Array, scales: Array, out: str) -> Work:
    """The same with numpy and ml_dtypes."""
    weight, target = codes.view(ml_dtypes.float8_e4m3fn), DTYPES[out].numpy()
    return lambda: (weight.astype(np.float32) * scales).astype(target)


def torch_fp8(codes: Array, scales: Array, out: str) -> Work:
    """The same with torch."""
    import torch

    torch.set_num_threads(1)
    weight = torch.from_numpy(codes).view(torch.float8_e4m3fn)
    factors, target = torch.from_numpy(scales), getattr(torch, DTYPES[out].torch_name)
    if factors.numel() == 1:  # as people write it, and without the cost of broadcasting
        weight, factors = weight.flatten(), factors.flatten()
    return lambda: (weight.float() * factors).to(target)


def fp8(elements: int) -> Iterator[Contest]:
    """F8_E4M3 with each grid of scales, to each output."""
    rows = elements // COLS
    for grid in ("tensor", "row", "block128", "mxfp8"):
        codes, scales = codes_and_scales(grid, rows)
        for out in OUTPUTS:
            calls = {
                level: scaled_call("F8_E4M3", grid, out, level, rows, COLS)
                for level in _core.supported_levels()
            }
            peers = {"numpy": numpy_fp8(codes, scales, out)}
            if HAVE_TORCH:
                peers["torch"] = torch_fp8(codes, scales, out)
            yield Contest(
                f"fp8 {grid}",
                out,
                rows * COLS,
                {level: call for level, (call, _) in calls.items()},
                memcpy_call(calls["scalar"][1]),
                peers,
            )


def convert(elements: int) -> Iterator[Contest]:
    """The casts between floats that numpy and torch have too."""
    for src in _core.FLOATS:
        for out in OUTPUTS:
            if src == out:
                continue
            calls = {
                level: convert_call(src, out, level, elements) for level in _core.supported_levels()
            }
            values = np.random.default_rng(1).standard_normal(elements, np.float32)
            source = values.astype(DTYPES[src].numpy())
            yield Contest(
                f"convert {src}",
                out,
                elements,
                {level: call for level, (call, _) in calls.items()},
                memcpy_call(calls["scalar"][1]),
                casts(source, src, out),
            )


def casts(source: Array, src: str, out: str) -> dict[str, Work]:
    """`source` to `out` by numpy, and by torch if there is one."""
    target = DTYPES[out].numpy()
    works: dict[str, Work] = {"numpy": lambda: source.astype(np.float32).astype(target)}
    if HAVE_TORCH:
        import torch

        torch.set_num_threads(1)
        tensor = torch.from_numpy(source.view(np.uint8)).view(
            getattr(torch, DTYPES[src].torch_name)
        )
        torch_target = getattr(torch, DTYPES[out].torch_name)
        works["torch"] = lambda: tensor.to(torch_target)
    return works


def block(elements: int) -> Iterator[Contest]:
    """Every GGUF block type, to each output."""
    for name in _core.BLOCKS:
        for out in OUTPUTS:
            calls = {
                level: block_call(name, out, level, elements) for level in _core.supported_levels()
            }
            yield Contest(
                name,
                out,
                elements,
                {level: call for level, (call, _) in calls.items()},
                memcpy_call(calls["scalar"][1]),
                ggml_decoders(name, elements),
            )


def ggml_decoders(name: str, elements: int) -> dict[str, Work]:
    """ggml's C to float32, and gguf-py where it has the type."""
    ggml_c = importlib.import_module("tools.ggml_c")  # which tests import by its bare name

    stored, library = BLOCK_DTYPES[name], ggml_c.ggml("native")
    blocks, values = (
        plausible_blocks(name, stored.n_bytes(elements)),
        np.zeros(elements, np.float32),
    )
    works: dict[str, Work] = {
        "ggml C": lambda: library.to_float(_core.BLOCKS[name], blocks, values)
    }
    if HAVE_GGUF:
        import gguf

        kind = gguf.GGMLQuantizationType.__members__.get(name)
        rows = blocks.reshape(-1, stored.block_bytes * (256 // stored.block_elements))
        try:
            if kind is not None and kind.name != "Q8_1":  # whose size it has wrong
                gguf.quants.dequantize(rows[:1], kind)
                works["gguf-py"] = lambda: gguf.quants.dequantize(rows, kind)
        except NotImplementedError:
            pass
    return works


def absmax(elements: int) -> Iterator[Contest]:
    """NF4 in blocks of 64, as most have them, 32 and 4096, FP4, and INT8; to each output."""
    for name, code, block in (
        ("NF4 64", "NF4", 64),
        ("NF4 32", "NF4", 32),
        ("NF4 4096", "NF4", 4096),
        ("NF4 64 nested", "NF4", 64),
        ("FP4 64", "FP4", 64),
        ("INT8", "INT8", COLS),
    ):
        is_nested = name.endswith("nested")
        for out in OUTPUTS:
            make = nested_call if is_nested else absmax_call
            calls = {
                level: make(code, block, out, level, elements) for level in _core.supported_levels()
            }
            yield Contest(
                name,
                out,
                elements,
                {level: call for level, (call, _) in calls.items()},
                memcpy_call(calls["scalar"][1]),
                bnb_decoders(code, block, is_nested, out, elements) if HAVE_BNB else {},
            )


def nested_call(code: str, block: int, out: str, level: str, count: int) -> tuple[Work, int]:
    """Return the same for a double-quantised weight, whose absmax are recovered band by band."""
    rng = np.random.default_rng(1)
    src = rng.integers(0, 256, count // 2, dtype=np.uint8)
    codebook = np.array(CODEBOOKS[code], np.float32).view(np.uint8)
    codes = rng.integers(0, 256, count // block, dtype=np.uint8)
    nested_codebook = np.linspace(-1, 1, 256, dtype=np.float32).view(np.uint8)
    nested = np.full(-(-codes.size // NESTED_BLOCK), 0.01, np.float32).view(np.uint8)
    dst = room(count * item_bytes(out))
    f32, number = _core.FLOATS["F32"], level_id(level)
    band = band_bytes() // item_bytes(out) // (block * NESTED_BLOCK) * block * NESTED_BLOCK
    absmax = np.empty(band // block * 4, np.uint8)

    def call() -> int:
        ids = _core.ABSMAX["CODEBOOK4"], _core.OUTPUTS[out]
        for at in range(0, count, band):
            n = min(band, count - at)
            of_band = codes[at // block : (at + n) // block]
            phase = at // block // NESTED_BLOCK * 4
            _core.recover_absmax(
                of_band, absmax, nested_codebook, nested[phase:], NESTED_BLOCK, 0.02
            )
            _core.dequantize_absmax(
                *ids,
                src[at // 2 : (at + n) // 2],
                dst[at * item_bytes(out) :],
                n,
                codebook,
                absmax,
                f32,
                block,
                level=number,
            )
        return 0

    return call, src.size + codes.size + nested.size + dst.size


def bnb_decoders(
    code: str, block: int, is_nested: bool, out: str, elements: int
) -> dict[str, Work]:
    """bitsandbytes' own code for CPUs, and for INT8 a cast to the output after it."""
    import torch
    from bitsandbytes import functional

    torch.set_num_threads(1)
    rng = np.random.default_rng(1)
    maxima = torch.from_numpy(np.exp(rng.uniform(-6, -3, elements // block)).astype(np.float32))
    dtype, shape = getattr(torch, DTYPES[out].torch_name), torch.Size((elements // COLS, COLS))
    if code == "INT8":
        rows = torch.from_numpy(rng.integers(-128, 128, tuple(shape), np.int8))
        return {"bnb": lambda: functional.int8_vectorwise_dequant(rows, maxima).to(dtype)}
    codes = torch.from_numpy(rng.integers(0, 256, (elements // 2, 1), np.uint8))
    codebook = torch.tensor(NF4 if code == "NF4" else FP4)
    state = functional.QuantState(maxima, shape, codebook, block, code.lower(), dtype)
    if is_nested:
        state.offset = maxima.mean()
        state.absmax, state.state2 = functional.quantize_blockwise(
            maxima - state.offset, blocksize=256
        )
        state.nested = True
    return {"bnb": lambda: functional.dequantize_4bit(codes, state)}


def packed(elements: int) -> Iterator[Contest]:
    """GPTQ in each width, EXL2's others and AWQ, groups of 128, in order or not; to each output."""
    rows = elements // COLS
    for packing in _core.PACKINGS:
        for act_order in (False, True) if packing != "AWQ4" else (False,):
            arrays = PackedArrays(packing, rows, COLS, 128, act_order)
            for out in OUTPUTS:
                calls = {
                    level: packed_call(arrays, out, level) for level in _core.supported_levels()
                }
                yield Contest(
                    f"{packing} act-order" if act_order else packing,
                    out,
                    rows * COLS,
                    {level: call for level, (call, _) in calls.items()},
                    memcpy_call(calls["scalar"][1]),
                    awq_decoder(arrays, out) if packing == "AWQ4" else gptq_decoder(arrays, out),
                )


def packed_tensors(arrays: PackedArrays) -> dict[str, Any]:
    """The arrays as torch's, with scales in float32."""
    import torch

    torch.set_num_threads(1)
    tensors = {
        name: torch.from_numpy(array.view(np.int32) if array.dtype == np.uint32 else array)
        for name, array in arrays.arrays.items()
    }
    tensors["scales"] = tensors["scales"].float()
    if not arrays.act_order:
        tensors["g_idx"] = torch.arange(arrays.cols, dtype=torch.int32) // arrays.group_size
    return tensors


def as_ours(decode: Callable[[], Any], out: str) -> Work:
    """What makes the same of a library's float32 [in, out]: rounded, transposed."""
    import torch

    dtype = getattr(torch, DTYPES[out].torch_name)
    return lambda: decode().to(dtype).t().contiguous()


def gptq_decoder(arrays: PackedArrays, out: str) -> dict[str, Work]:
    """GPTQModel's own layer, after its conversion to v2, of what it has."""
    if not HAVE_GPTQMODEL or not arrays.packing.startswith("GPTQ"):
        return {}
    os.environ["GPTQMODEL_DISABLE_PACK_EXT"] = "1"  # which would be compiled first
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear

    layer = TorchLinear(
        bits=int(arrays.packing[-1]),
        group_size=arrays.group_size,
        sym=False,
        desc_act=arrays.act_order,
        in_features=arrays.cols,
        out_features=arrays.rows,
        bias=False,
    ).eval()
    for name, tensor in packed_tensors(arrays).items():
        layer.register_buffer(name, tensor)
    return {"GPTQModel": as_ours(layer.dequantize_weight, out)}


def awq_decoder(arrays: PackedArrays, out: str) -> dict[str, Work]:
    """AutoAWQ's own formula."""
    if not HAVE_AUTOAWQ:
        return {}
    tensors, library = packed_tensors(arrays), autoawq_packing()
    parts = tuple(tensors[name] for name in ("qweight", "qzeros", "scales"))
    decode = partial(library.dequantize_gemm, *parts, 4, arrays.group_size)
    return {"AutoAWQ": as_ours(decode, out)}


def autoawq_packing() -> ModuleType:
    """Its packing_utils.py, which imports torch alone; its package imports what is gone."""
    file = next(f for f in distribution("autoawq").files or () if f.name == "packing_utils.py")
    spec = importlib.util.spec_from_file_location("packing_utils", str(file.locate()))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def integers(elements: int) -> Iterator[Contest]:
    """Integers of rows in groups of 128, in every width and layout; to each output."""
    for name in _core.INTEGERS:
        for out in OUTPUTS:
            calls = {
                level: integers_call(name, out, level, elements // COLS)
                for level in _core.supported_levels()
            }
            yield Contest(
                name,
                out,
                elements // COLS * COLS,
                {level: call for level, (call, _) in calls.items()},
                memcpy_call(calls["scalar"][1]),
                {},
            )


def encode(elements: int) -> Iterator[Contest]:
    """Every encoder from BF16, the loss measured, and not measured."""
    for name in ENCODERS:
        for measure_loss in (True, False):
            calls = {
                level: encode_call(name, "BF16", level, measure=measure_loss, rows=elements // COLS)
                for level in _core.supported_levels()
            }
            yield Contest(
                name,
                "loss" if measure_loss else "-",
                elements // COLS * COLS,
                {level: call for level, (call, _) in calls.items()},
                memcpy_call(calls["scalar"][1]),
                encoders_of(name, elements),
            )


def encoders_of(name: str, elements: int) -> dict[str, Work]:
    """What transformers and bitsandbytes encode with, which measure nothing."""
    if not HAVE_BNB:
        return {}
    import torch
    from bitsandbytes import functional

    torch.set_num_threads(1)
    weight = (torch.randn(elements // COLS, COLS) / 50).to(torch.bfloat16)
    if name in ("bnb-nf4", "bnb-fp4"):
        quantize, kind = functional.quantize_4bit, name.removeprefix("bnb-")
        return {"bnb": lambda: quantize(weight, blocksize=64, quant_type=kind)}
    if name == "bnb-int8":
        return {"bnb": lambda: functional.int8_vectorwise_quant(weight.half())}
    if name == "fp8-block":
        from transformers import FineGrainedFP8Config
        from transformers.integrations.finegrained_fp8 import Fp8Quantize

        quantizer = type("Quantizer", (), {"quantization_config": FineGrainedFP8Config()})()
        convert = Fp8Quantize(quantizer).convert
        return {"transformers": lambda: convert({"w.weight": [weight]})}
    return {}


def encode_blocks(elements: int) -> Iterator[Contest]:
    """Every type of GGUF blocks from F32, with and without importance, beside ggml's C.

    Of a 64th of the elements, as some do no more than a million a second.
    """
    library = importlib.import_module("tools.ggml_c").ggml("plain")
    rows = max(elements // COLS // 64, 1)
    for name in block_encoders():
        kind, _, is_weighed = name.partition(" by ")
        values, importance = block_numbers(rows)
        calls = {
            level: encode_blocks_call(name, level, rows=rows) for level in _core.supported_levels()
        }
        weights = importance if is_weighed else None
        yield Contest(
            kind,
            "im" if is_weighed else "-",
            rows * COLS,
            {level: call for level, (call, _) in calls.items()},
            memcpy_call(calls["scalar"][1]),
            {"ggml C": partial(library.quantize, _core.BLOCKS[kind], values, weights)},
        )


# A family of kernels: what yields its rows for a number of elements. New families go here.
FAMILIES: dict[str, Callable[[int], Iterator[Contest]]] = {
    "fp8": fp8,
    "convert": convert,
    "block": block,
    "absmax": absmax,
    "packed": packed,
    "integers": integers,
    "encode": encode,
    "encode blocks": encode_blocks,
}


def measure(contest: Contest, turns: int) -> dict[str, float]:
    """GE/s of every contestant, turn by turn; the best of each."""
    works = {**contest.ours, "memcpy": contest.memcpy, **contest.peers}
    best = dict.fromkeys(works, float("inf"))
    for _ in range(turns):
        for name, work in works.items():
            start = time.thread_time()
            work()
            best[name] = min(best[name], time.thread_time() - start)
    return {name: contest.elements / seconds / 1e9 for name, seconds in best.items()}


def row(contest: Contest, rates: dict[str, float], peers: Sequence[str]) -> list[str]:
    """One row of the table as text."""
    best = _core.supported_levels()[-1]
    cells = [contest.name, contest.out]
    cells += [f"{rates[name]:.2f}" for name in (best, "scalar", "memcpy")]
    cells.append(f"{rates[best] / rates['memcpy']:.2f}")
    for peer in peers:
        if peer in rates:
            cells += [
                f"{rates[peer]:.3f}",
                f"{rates[best] / rates[peer]:.1f}x",
                f"{rates['scalar'] / rates[peer]:.1f}x",
            ]
        else:
            cells += ["-"] * 3
    return cells


def head(peers: Sequence[str]) -> list[str]:
    """The first line of the table."""
    best = _core.supported_levels()[-1]
    cells = ["GE/s", "out", best, "scalar", "memcpy", f"{best}/memcpy"]
    for peer in peers:
        cells += [peer, f"{best}/{peer}", f"scalar/{peer}"]
    return cells


def print_row(cells: list[str]) -> None:
    """Print one aligned line at once, since the next takes a while."""
    name, out, *figures = cells
    print(f"{name:<16} {out:<4}", *(f"{figure:>12}" for figure in figures), flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="4 million elements, 2 turns")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--million", type=int, default=64, help="elements (1 is 2**20)")
    parser.add_argument("--family", choices=FAMILIES, action="append", help="default: all")
    options = parser.parse_args()
    million, turns = (4, 2) if options.quick else (options.million, options.turns)
    for family in options.family or FAMILIES:
        peers = PEERS[family]
        print_row(head(peers))
        for contest in FAMILIES[family](million << 20):
            print_row(row(contest, measure(contest, turns), peers))


if __name__ == "__main__":
    main()
