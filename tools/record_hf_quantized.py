"""Record what llama.cpp makes of directories in two steps: `python tools/record_hf_quantized.py`.

Its converter writes float32, and llama-quantize a mix of that. The directories are those recorded
by `record_hf_gguf.py`, of rows as long as K-quants need.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import ggml_c
import record_hf_gguf

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from helpers import recorded_hf

OUT = Path(__file__).parents[1] / "tests/architectures/quantized.json"
RUNS = {
    "llama_llama3": ("q4_k_m", "q8_0"),
    "mistral": ("q4_k_m", "q6_k"),
    "qwen2": ("q4_k_m", "q5_k_s"),
    "qwen3_tied": ("q4_k_m",),
    "gemma3": ("q4_k_m", "bf16"),
}


def quantized(path: Path, mix: str) -> str:
    """Return the digest of what llama-quantize makes of a file."""
    out = path.with_name("out.gguf")
    command = [str(ggml_c.llama_quantize()), str(path), str(out), mix, "2"]
    quiet = {**os.environ, "LD_LIBRARY_PATH": ""}  # its own libraries, not those of a caller
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=quiet)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")
    return hashlib.sha256(out.read_bytes()).hexdigest()


def main() -> None:
    """Make, convert and quantise all, and record them."""
    with tempfile.TemporaryDirectory() as told:
        folder = Path(told)
        for name in RUNS:
            recorded_hf.remake(name, folder / name / "hf")
        if failed := record_hf_gguf.convert(list(RUNS), folder):
            raise RuntimeError("\n".join(failed.values()))
        found = {
            name: {mix: quantized(folder / name / "ref.gguf", mix) for mix in mixes}
            for name, mixes in RUNS.items()
        }
    OUT.write_text(json.dumps({"llama.cpp": ggml_c.PACKAGE, "files": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
