"""What benchmarks of whole files share: generated models, and the writers that set the limit.

Nothing here holds more than a megabyte, so that peak memory is that of what is measured; but for
the writers of torch files, which are for processes of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

CHUNK = 1 << 20
SIDE = 4096  # of a weight, square
BLOCK = 128  # of elements that share a scale, square
BENCH_DIR = "ANAMNESIS_BENCH_DIR"
BENCH_MB = "ANAMNESIS_BENCH_MB"

Stored = tuple[str, str, tuple[int, ...], int]  # name, dtype, shape, bytes


def temporary_folder(where: str | None = None) -> tempfile.TemporaryDirectory[str]:
    """Return a folder for large files, below `where` or what ANAMNESIS_BENCH_DIR says."""
    return tempfile.TemporaryDirectory(
        prefix="anamnesis-bench-", dir=where or os.environ.get(BENCH_DIR)
    )


def output_bytes() -> int:
    """Return how large the benchmarks' BF16 outputs are: ANAMNESIS_BENCH_MB, or 256 MB."""
    return int(os.environ.get(BENCH_MB, "256")) * 1_000_000


def header(tensors: Iterable[Stored]) -> bytes:
    """Return the length and header of a safetensors file of `tensors`, back to back."""
    entries: dict[str, object] = {}
    end = 0
    for name, dtype, shape, n_bytes in tensors:
        begin, end = end, end + n_bytes
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def header_text(path: Path) -> bytes:
    """Return the JSON of a safetensors file's header."""
    with open(path, "rb") as file:
        return file.read(int.from_bytes(file.read(8), "little"))


def write_fp8(path: Path, n_output: int) -> None:
    """Write a fine-grained FP8 model that takes about `n_output` bytes as BF16.

    Square weights of 4096 with a float32 scale for every 128x128 block. The codes are random, but
    for NaNs, and repeat after a megabyte.
    """
    import numpy as np  # here, so that who only copies does not grow by it

    n_weights = max(1, round(n_output / (2 * SIDE * SIDE)))
    grid = (SIDE // BLOCK, SIDE // BLOCK)
    tensors: list[Stored] = []
    for i in range(n_weights):
        name = f"model.layers.{i}.mlp.up_proj.weight"
        tensors.append((name, "F8_E4M3", (SIDE, SIDE), SIDE * SIDE))
        tensors.append((f"{name}_scale_inv", "F32", grid, 4 * grid[0] * grid[1]))
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 256, CHUNK, dtype=np.uint8)
    codes[(codes & 0x7F) == 0x7F] = 0
    scales = np.exp(rng.uniform(-9, -5, grid)).astype(np.float32)
    with open(path, "wb") as file:
        file.write(header(tensors))
        for _ in range(n_weights):
            for _ in range(SIDE * SIDE // CHUNK):
                file.write(codes.data)
            file.write(scales.data)


def write_bf16(path: Path, n_output: int) -> None:
    """Write a safetensors model of about `n_output` bytes, in square BF16 weights of 4096."""
    n_weights = max(1, round(n_output / (2 * SIDE * SIDE)))
    data = _normal_words(bf16=True)
    with open(path, "wb") as file:
        file.write(
            header(
                (f"model.layers.{i}.mlp.up_proj.weight", "BF16", (SIDE, SIDE), 2 * SIDE * SIDE)
                for i in range(n_weights)
            )
        )
        for _ in range(n_weights * 2 * SIDE * SIDE // CHUNK):
            file.write(data)


def write_gguf_f16(path: Path, n_output: int) -> None:
    """Write the same as a GGUF model of F16, which stays what it is."""
    f16 = 1
    n_weights, weight_bytes = max(1, round(n_output / (2 * SIDE * SIDE))), 2 * SIDE * SIDE
    data = _normal_words(bf16=False)
    with open(path, "wb") as file:
        file.write(_gguf_table(n_weights, f16, weight_bytes))
        for _ in range(n_weights * weight_bytes // CHUNK):
            file.write(data)


def _normal_words(*, bf16: bool) -> bytes:
    """Return a megabyte of normally distributed numbers."""
    import numpy as np

    values = np.random.default_rng(1).standard_normal(CHUNK // 2, np.float32) / 50
    words = values.view(np.uint32) >> 16 if bf16 else values.astype(np.float16).view(np.uint16)
    return words.astype("<u2").tobytes()


def _gguf_table(n_weights: int, kind: int, weight_bytes: int) -> bytes:
    """Return all that precedes the data of square weights of 4096, one per block."""
    table = struct.pack("<4sIQQ", b"GGUF", 3, n_weights, 0)
    for i in range(n_weights):
        name = f"blk.{i}.ffn_up.weight".encode()
        table += struct.pack("<Q", len(name)) + name
        table += struct.pack("<IQQIQ", 2, SIDE, SIDE, kind, i * weight_bytes)
    return table + bytes(-len(table) % 32)


def write_q4_k(path: Path, n_output: int) -> None:
    """Write a GGUF model of Q4_K blocks that takes about `n_output` bytes as BF16.

    Square weights of 4096. The codes are random, the scales of a size that real ones have, and all
    repeat after a megabyte.
    """
    import numpy as np

    block_elements, block_bytes, q4_k = 256, 144, 12
    n_weights = max(1, round(n_output / (2 * SIDE * SIDE)))
    weight_bytes = SIDE * SIDE // block_elements * block_bytes
    rng = np.random.default_rng(1)
    n_blocks = CHUNK // block_bytes
    blocks = rng.integers(0, 256, (n_blocks, block_bytes), dtype=np.uint8)
    blocks[:, :4] = (
        np.exp(rng.uniform(-9, -5, (n_blocks, 2))).astype(np.float16).view(np.uint8)  # d, dmin
    )
    data = blocks.tobytes()
    with open(path, "wb") as file:
        file.write(_gguf_table(n_weights, q4_k, weight_bytes))
        for start in range(0, n_weights * weight_bytes, len(data)):
            file.write(data[: n_weights * weight_bytes - start])


def write_gptq(path: Path, n_output: int) -> None:
    """Write a GPTQ model in 4 bits that takes about `n_output` bytes as BF16, without act-order."""
    _write_packed(path, n_output, (SIDE // 8, SIDE), g_idx="runs")


def write_gptq_act_order(path: Path, n_output: int) -> None:
    """Write the same with act-order."""
    _write_packed(path, n_output, (SIDE // 8, SIDE), g_idx="permuted")


def write_awq(path: Path, n_output: int) -> None:
    """Write an AWQ model that takes about `n_output` bytes as BF16."""
    _write_packed(path, n_output, (SIDE, SIDE // 8), g_idx="")


def _write_packed(path: Path, n_output: int, words: tuple[int, int], *, g_idx: str) -> None:
    """Write square weights of 4096 in 4 bits and groups of 128, the parts of each side by side.

    Codes and zero points are random, and all repeat after a megabyte.
    """
    import numpy as np

    n_groups, n_weights = SIDE // BLOCK, max(1, round(n_output / (2 * SIDE * SIDE)))
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 256, CHUNK, dtype=np.uint8).tobytes()
    zeros = codes[: n_groups * SIDE // 2]
    scales = np.exp(rng.uniform(-9, -5, (n_groups, SIDE))).astype(np.float16).tobytes()
    columns = rng.permutation(SIDE) if g_idx == "permuted" else np.arange(SIDE)
    groups = (columns // BLOCK).astype(np.int32).tobytes() if g_idx else b""
    tensors: list[Stored] = []
    for i in range(n_weights):
        name = f"model.layers.{i}.mlp.up_proj"
        tensors.append((f"{name}.qweight", "I32", words, SIDE * SIDE // 2))
        tensors.append((f"{name}.qzeros", "I32", (n_groups, SIDE // 8), len(zeros)))
        tensors.append((f"{name}.scales", "F16", (n_groups, SIDE), len(scales)))
        if g_idx:
            tensors.append((f"{name}.g_idx", "I32", (SIDE,), len(groups)))
    with open(path, "wb") as file:
        file.write(header(tensors))
        for _ in range(n_weights):
            for _ in range(SIDE * SIDE // 2 // CHUNK):
                file.write(codes)
            file.write(zeros + scales + groups)


def write_nf4(path: Path, n_output: int) -> None:
    """Write an NF4 model in blocks of 64 that takes about `n_output` bytes as BF16."""
    _write_four_bit(path, n_output, "nf4")


def write_nf4_double(path: Path, n_output: int) -> None:
    """Write the same with double quantisation: absmax in 8 bits, nested blocks of 256."""
    _write_four_bit(path, n_output, "nf4", is_nested=True)


def write_fp4(path: Path, n_output: int) -> None:
    """Write an FP4 model in blocks of 64 that takes about `n_output` bytes as BF16."""
    _write_four_bit(path, n_output, "fp4")


def _write_four_bit(path: Path, n_output: int, kind: str, *, is_nested: bool = False) -> None:
    """Write square weights of 4096; codes are random and repeat after a megabyte.

    Any absmax will do, for speed.
    """
    import numpy as np

    from anamnesis._core import BNB_CODEBOOKS

    block, nested_block, n_codes = 64, 256, SIDE * SIDE // 2
    n_weights, n_absmax = max(1, round(n_output / (2 * SIDE * SIDE))), SIDE * SIDE // block
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 256, CHUNK, dtype=np.uint8).tobytes()
    told: dict[str, object] = {
        "quant_type": kind,
        "blocksize": block,
        "dtype": "bfloat16",
        "shape": [SIDE, SIDE],
    }
    absmax = np.exp(rng.uniform(-6, -3, n_absmax)).astype(np.float32)
    parts: dict[str, tuple[str, bytes]] = {
        "absmax": ("F32", absmax.tobytes()),
        "quant_map": ("F32", BNB_CODEBOOKS[kind.upper()]),
    }
    if is_nested:
        told |= {"nested_blocksize": nested_block, "nested_offset": 0.02, "nested_dtype": "float32"}
        parts["absmax"] = ("U8", rng.integers(0, 256, n_absmax, dtype=np.uint8).tobytes())
        parts["nested_absmax"] = ("F32", absmax[: n_absmax // nested_block].tobytes())
        parts["nested_quant_map"] = ("F32", np.linspace(-1, 1, 256, dtype=np.float32).tobytes())
    parts[f"quant_state.bitsandbytes__{kind}"] = ("U8", json.dumps(told).encode())
    tensors: list[Stored] = []
    for i in range(n_weights):
        name = f"model.layers.{i}.mlp.up_proj.weight"
        tensors.append((name, "U8", (n_codes, 1), n_codes))
        for part, (dtype, data) in parts.items():
            shape = (len(data) // (4 if dtype == "F32" else 1),)
            tensors.append((f"{name}.{part}", dtype, shape, len(data)))
    with open(path, "wb") as file:
        file.write(header(tensors))
        for _ in range(n_weights):
            for _ in range(n_codes // CHUNK):
                file.write(codes)
            for _, data in parts.values():
                file.write(data)


def write_int8(path: Path, n_output: int) -> None:
    """Write an LLM.int8() model of square weights that takes about `n_output` bytes as BF16."""
    import numpy as np

    n_weights = max(1, round(n_output / (2 * SIDE * SIDE)))
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 256, CHUNK, dtype=np.uint8).tobytes()
    scb = np.exp(rng.uniform(-3, 1, SIDE)).astype(np.float32).tobytes()
    tensors: list[Stored] = []
    for i in range(n_weights):
        name = f"model.layers.{i}.mlp.up_proj"
        tensors.append((f"{name}.weight", "I8", (SIDE, SIDE), SIDE * SIDE))
        tensors.append((f"{name}.SCB", "F32", (SIDE,), len(scb)))
        tensors.append((f"{name}.weight_format", "U8", (), 1))
    with open(path, "wb") as file:
        file.write(header(tensors))
        for _ in range(n_weights):
            for _ in range(SIDE * SIDE // CHUNK):
                file.write(codes)
            file.write(scb + b"\0")


def write_npz(path: Path, n_output: int) -> None:
    """Write an NPZ archive of about this many bytes of float32, stored, in matrices of 4 MB."""
    _write_npz(path, n_output, zipfile.ZIP_STORED)


def write_npz_deflated(path: Path, n_output: int) -> None:
    """Write the same deflated; half of each number's bits are zeros, as where BF16 was widened."""
    _write_npz(path, n_output, zipfile.ZIP_DEFLATED)


def _write_npz(path: Path, n_output: int, method: int) -> None:
    """Write as numpy.savez does, but without all the arrays at once."""
    import numpy as np

    values = np.random.default_rng(1).standard_normal((1000, 1000), np.float32)
    if method == zipfile.ZIP_DEFLATED:
        values = (values.view(np.uint32) & 0xFFFF0000).view(np.float32)
    with zipfile.ZipFile(path, "w", method) as archive:
        for i in range(max(1, round(n_output / values.nbytes))):
            with archive.open(f"layers.{i}.weight.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, values)


def write_state(path: Path, n_tensors: int) -> None:
    """Write a state dictionary of `n_tensors` float32 tensors of 1 KB."""
    import torch

    torch.save({f"layers.{i}.weight": torch.randn(16, 16) for i in range(n_tensors)}, path)


def write_pth(path: Path, n_output: int, *, zipped: bool = True, transposed: bool = False) -> None:
    """Write 100 float32 weights with torch, which stay what they are: `n_output` bytes."""
    import torch

    side = max(1, int((n_output / 4 / 100) ** 0.5))
    weight = torch.randn(side, side)
    weights = (weight.clone() for _ in range(100))
    state = {f"layers.{i}.weight": w.T if transposed else w for i, w in enumerate(weights)}
    torch.save(state, path, _use_new_zipfile_serialization=zipped)


def write_legacy_pth(path: Path, n_output: int) -> None:
    """Write the same in torch's format before 1.6."""
    write_pth(path, n_output, zipped=False)


def write_transposed_pth(path: Path, n_output: int) -> None:
    """Write the same, each weight column by column."""
    write_pth(path, n_output, transposed=True)


def write_many(path: Path, n_tensors: int) -> None:
    """Write a model of many small tensors, named as a mixture of experts names them."""
    tensors: list[Stored] = []
    for i in range(n_tensors // 2):
        name = f"model.layers.{i // 512}.mlp.experts.{i % 512}.up_proj.weight"
        tensors.append((name, "F8_E4M3", (16, 16), 256))
        tensors.append((f"{name}_scale_inv", "F32", (1, 1), 4))
    with open(path, "wb") as file:
        file.write(header(tensors))
        file.truncate(file.tell() + n_tensors // 2 * 260)


def bare_write(path: Path, n_bytes: int, threads: int = 2) -> None:
    """Write `n_bytes` from one warm buffer into reserved space: what no converter can beat."""
    warm = memoryview(bytes(range(256)) * (CHUNK // 256))
    with open(path, "wb") as file:
        reserve(file.fileno(), n_bytes)
        if not hasattr(os, "pwrite"):  # Windows
            for start in range(0, n_bytes, CHUNK):
                file.write(warm[: n_bytes - start])
            return

        def write(first: int) -> None:
            for start in range(first * CHUNK, n_bytes, threads * CHUNK):
                done, end = start, min(start + CHUNK, n_bytes)
                while done < end:
                    done += os.pwrite(file.fileno(), warm[: end - done], done)

        on_threads(write, threads)


def bare_read(path: Path, threads: int = 2) -> None:
    """Read a file, each thread into a warm buffer of its own: what no converter can do without."""

    def read(first: int) -> None:
        warm = memoryview(bytearray(CHUNK))
        with open(path, "rb", buffering=0) as file:
            for start in range(first * CHUNK, n_bytes, threads * CHUNK):
                file.seek(start)
                file.readinto(warm)

    n_bytes = path.stat().st_size
    on_threads(read, threads)


def on_threads(work: Callable[[int], None], threads: int) -> None:
    """Run work(0), work(1), … at once."""
    workers = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def reserve(fd: int, n_bytes: int) -> None:
    """Give a file its length and, where the system can, its blocks."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, n_bytes)
    else:
        os.truncate(fd, n_bytes)


def settle() -> None:
    """Let the disk take what earlier turns wrote, or the next one pays for it."""
    if hasattr(os, "sync"):
        os.sync()


def peak_memory_of(work: Callable[[], object]) -> int:
    """Return by how many bytes the process grew at most while it did some work (Linux).

    getrusage cannot tell: its figure starts at that of the process which started this one.
    """

    def high_water() -> int:
        status = Path("/proc/self/status").read_text()
        return 1024 * int(status.split("VmHWM:")[1].split()[0])

    if sys.platform != "linux":
        raise NotImplementedError
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark falls to what is in use
    before = high_water()
    work()
    return high_water() - before


def cp(source: Path, target: Path) -> None:
    """Copy a file as the system's own command does, but never by sharing its blocks."""
    if sys.platform == "win32":
        shutil.copyfile(source, target)
        return
    plain = ["--reflink=never"] if sys.platform == "linux" else []
    subprocess.run(["cp", *plain, source, target], check=True)
