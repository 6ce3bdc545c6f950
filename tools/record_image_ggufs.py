"""Record what ComfyUI-GGUF's tools make of tiny image models.

`python tools/record_image_ggufs.py TOOLS LLAMA_QUANTIZE`: its folder `tools`, and the program that
is built of llama.cpp b3962 with its lcpp.patch. Of each file the SHA-256 is kept: names, order,
keys, types and all bytes are compared by it.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from helpers.image_models import MODELS, RECORDED, RECORDS, write_image_model

# What its script of five dimensions does no longer with numpy 2.4.
OLD, NEW = "int(field.parts[field.data[-1]])", "int(field.parts[field.data[-1]][0])"


def main() -> None:
    """Record all models."""
    tools, quantize = (Path(argument).resolve() for argument in sys.argv[1:])
    found: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder)
        fix = (tools / "fix_5d_tensors.py").read_text().replace(OLD, NEW)
        (room / "fix.py").write_text(fix)
        for arch in MODELS:
            for dtype, types in RECORDS[arch].items():
                found[f"{arch} {dtype}"] = recorded(room, tools, quantize, arch, dtype, types)
    RECORDED.write_text(json.dumps(found, indent=1) + "\n")


def recorded(
    room: Path, tools: Path, quantize: Path, arch: str, dtype: str, types: str
) -> dict[str, str]:
    """Return the digests of a model's files, by the type that is asked for."""
    source, plain = room / "model.safetensors", room / "plain.gguf"
    write_image_model(source, arch, dtype)
    for old in (*room.glob("*.gguf"), *room.glob("fix_5d*")):
        old.unlink()
    run(room, sys.executable, tools / "convert.py", "--src", source, "--dst", plain)
    made = {"gguf": digest(room, arch, plain)}
    for type in types.split():
        output = room / f"{type}.gguf"
        run(room, quantize, plain, output, type, "1")
        made[type.lower()] = digest(room, arch, output)
    return made


def digest(room: Path, arch: str, made: Path) -> str:
    """Return the digest of a file, with the tensors of five dimensions that were set aside."""
    aside, whole = room / f"fix_5d_tensors_{arch}.safetensors", room / "whole.gguf"
    if aside.exists():
        told = ("--src", made, "--dst", whole, "--fix", aside, "--overwrite")
        run(room, sys.executable, room / "fix.py", *told)
        made = whole
    return hashlib.sha256(made.read_bytes()).hexdigest()


def run(room: Path, *command: object) -> None:
    """Run a command there; end with what it says where it fails."""
    done = subprocess.run(
        [str(word) for word in command], cwd=room, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{command}: {done.stderr[-2000:]}")


if __name__ == "__main__":
    main()
