"""Write digests of what llama-quantize makes: `python tools/record_llama_quantize.py`.

The models are those of `tests/helpers/whole_gguf.py`, whole and the same everywhere; the program is
built from llama.cpp's source by `ggml_c.py`, which takes a quarter of an hour the first time. Each
output must be the same with 1 thread and with 4.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import ggml_c

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from helpers import whole_gguf

OUT = Path(__file__).parents[1] / "tests/schemes/recorded/llama_quantize.json"


def digest(raw: bytes) -> str:
    """Return what is recorded of a file."""
    return hashlib.sha256(raw).hexdigest()


def output(run: whole_gguf.Run, threads: int, folder: Path) -> bytes:
    """Return the bytes of the file that the tool makes."""
    asked = whole_gguf.make(run, folder)
    command = [str(ggml_c.llama_quantize()), *asked, "out.gguf", run.mix, str(threads)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")
    return (folder / "out.gguf").read_bytes()


def parts(folder: Path) -> list[bytes]:
    """Return what the tool makes of a model in parts, cut by llama.cpp's gguf-split."""
    run = whole_gguf.IN_PARTS
    whole_gguf.make(run, folder)
    size = f"{whole_gguf.PART_BYTES // 10**6}M"
    cut = [str(ggml_c.gguf_split()), "--split-max-size", size, "model.gguf", "in"]
    subprocess.run(cut, cwd=folder, capture_output=True, check=True)
    first = min(path.name for path in folder.glob("in-*.gguf"))
    command = [str(ggml_c.llama_quantize()), *run.options, first, "out.gguf", run.mix]
    subprocess.run(command, cwd=folder, capture_output=True, check=True)
    return [path.read_bytes() for path in sorted(folder.glob("out-*.gguf"))]


def main() -> None:
    """Run all, and record them with what they were made of."""
    outputs = {}
    with tempfile.TemporaryDirectory() as told:
        folder = Path(told)
        for run in whole_gguf.RUNS:
            one, four = (digest(output(run, threads, folder)) for threads in (1, 4))
            if one != four:
                raise RuntimeError(f"{run.id}: other bytes with four threads")
            outputs[run.id] = one
            print(one[:16], run.id)
        in_parts = [digest(raw) for raw in parts(folder)]
    models = {name: digest(whole_gguf.gguf_bytes(name)) for name in whole_gguf.MODELS}
    found = {"llama.cpp": ggml_c.PACKAGE, "models": models, "outputs": outputs, "parts": in_parts}
    OUT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
