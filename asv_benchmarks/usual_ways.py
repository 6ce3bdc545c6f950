"""One table: conversions beside the usual ways of Python, in turns, in one process.

    python -m asv_benchmarks.usual_ways [--side 4096] [--turns 5] [--dir D]

Each takes a file of one square tensor and writes another file: numpy, torch, safetensors, gguf-py
and bitsandbytes as their documentation has it, on as many threads as we take. Beside them, what
sets the limit: a bare reader of the input, followed by a bare writer of as many bytes as come out.
The page cache is warm, what was written is removed outside of the times, and what counts is the
fastest turn. Times are in milliseconds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import bitsandbytes.functional as bnb
import gguf
import numpy as np
import safetensors.numpy
import safetensors.torch
import torch

import anamnesis as an
from asv_benchmarks.benchmarks.models import bare_read, bare_write, temporary_folder

NAME = "model.layers.0.mlp.up_proj.weight"


class Contest(NamedTuple):
    """A conversion, and the usual way of it.

    Attributes
    ----------
    what, peer : str
    source : Path
    to : str
        The target.
    suffix : str
        Of the file that is written.
    usual : function
        Takes the path to read and the path to write.
    """

    what: str
    peer: str
    source: Path
    to: str
    suffix: str
    usual: Callable[[Path, Path], Any]


def npz_to_safetensors(source: Path, out: Path) -> None:
    """Load all arrays, save them all."""
    with np.load(source) as arrays:
        safetensors.numpy.save_file(dict(arrays), out)


def pth_to_safetensors(source: Path, out: Path) -> None:
    """Map the file, as those do who are short of memory."""
    state = torch.load(source, weights_only=True, mmap=True)
    safetensors.torch.save_file(state, out)


def safetensors_to_gguf(source: Path, out: Path) -> None:
    """Write what gguf-py's own scripts write."""
    writer = gguf.GGUFWriter(out, "llama")
    for name, array in safetensors.numpy.load_file(source).items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_to_npz(source: Path, out: Path) -> None:
    """Dequantise with gguf-py."""
    made: dict[str, Any] = {}
    for tensor in gguf.GGUFReader(source).tensors:
        made[tensor.name] = gguf.dequantize(tensor.data, tensor.tensor_type)
    np.savez(out, **made)


def to_nf4(source: Path, out: Path) -> None:
    """Quantise each matrix with bitsandbytes, and pack its state as transformers does."""
    made: dict[str, torch.Tensor] = {}
    for name, weight in safetensors.torch.load_file(source).items():
        codes, state = bnb.quantize_4bit(weight, quant_type="nf4", blocksize=64)
        made |= {name: codes, **{f"{name}.{k}": v for k, v in state.as_dict(packed=True).items()}}
    safetensors.torch.save_file(made, out)


def contests(folder: Path, side: int) -> Iterator[Contest]:
    """Make the files, and say what is to be compared."""
    values = np.random.default_rng(1).standard_normal((side, side), np.float32)
    half = {NAME: torch.from_numpy(values).bfloat16()}
    sources = {suffix: folder / f"in.{suffix}" for suffix in ("npz", "pth", "safetensors", "gguf")}
    arrays: dict[str, Any] = {NAME: values}
    np.savez(sources["npz"], **arrays)
    torch.save(half, sources["pth"])
    safetensors.torch.save_file(half, sources["safetensors"])
    writer = gguf.GGUFWriter(sources["gguf"], "llama")
    blocks = gguf.quantize(values, gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor(NAME, blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    f16 = folder / "f16.safetensors"
    safetensors.numpy.save_file({NAME: values.astype(np.float16)}, f16)
    yield Contest(
        "NPZ to safetensors, F32",
        "numpy, safetensors",
        *(sources["npz"], "safetensors", "safetensors", npz_to_safetensors),
    )
    yield Contest(
        ".pth to safetensors, BF16",
        "torch, safetensors",
        *(sources["pth"], "safetensors", "safetensors", pth_to_safetensors),
    )
    yield Contest(
        "safetensors to GGUF, F16",
        "safetensors, gguf-py",
        *(f16, "gguf", "gguf", safetensors_to_gguf),
    )
    yield Contest(
        "GGUF Q8_0 to NPZ, F32", "gguf-py, numpy", *(sources["gguf"], "npz-f32", "npz", gguf_to_npz)
    )
    yield Contest(
        "BF16 to NF4",
        "bitsandbytes, safetensors",
        *(sources["safetensors"], "bnb-nf4", "safetensors", to_nf4),
    )


def measure(contest: Contest, folder: Path, turns: int, threads: int) -> dict[str, float]:
    """Return the seconds of each one's fastest turn, after one that does not count."""
    out = folder / f"out.{contest.suffix}"
    n_bytes = 0

    def ours() -> None:
        with an.parse(contest.source) as model:
            model.convert(out, contest.to, threads=threads)

    def bare() -> None:
        bare_read(contest.source, threads)
        bare_write(out, n_bytes, threads)

    works = {"ours": ours, "usual": lambda: contest.usual(contest.source, out), "bare": bare}
    best = dict.fromkeys(works, float("inf"))
    for turn in range(turns + 1):
        for who, work in works.items():
            start = time.perf_counter()
            work()
            elapsed = time.perf_counter() - start
            n_bytes = out.stat().st_size
            out.unlink()
            if turn:
                best[who] = min(best[who], elapsed)
    return best


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, default=4096, help="rows and columns of the tensor")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dir", help="where to put the files")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print("| conversion | `anamnesis` | usual way | bare reader and writer | times | of |")
    print("| --- | ---: | ---: | ---: | ---: | --- |")
    with temporary_folder(options.dir) as made:
        folder = Path(made)
        for contest in contests(folder, options.side):
            best = measure(contest, folder, options.turns, options.threads)
            cells = " | ".join(f"{best[who] * 1e3:.1f}" for who in ("ours", "usual", "bare"))
            times = best["usual"] / best["ours"]
            print(f"| {contest.what} | {cells} | {times:.1f} | {contest.peer} |", flush=True)


if __name__ == "__main__":
    main()
