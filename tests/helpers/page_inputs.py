"""The files that the pages of the documentation speak of: those that `amn demo` makes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

__all__ = ["FP8_DIRECTORY", "GGUF", "MIXED", "UPLOADS", "make_inputs", "run_demo"]

FP8_DIRECTORY = "llama-tiny-FP8"
GGUF = "llama-tiny-Q4_K_M.gguf"
UPLOADS = "uploads"
MIXED = "mixed"


def run_demo(folder: Path, *arguments: str) -> None:
    """Run `amn demo` in a folder."""
    demo = [sys.executable, "-m", "anamnesis", "demo", *arguments, str(folder)]
    subprocess.run(demo, check=True, stdout=subprocess.DEVNULL)


def make_inputs(folder: Path) -> None:
    """Run the demo in a folder, and make the inputs of all others."""
    run_demo(folder)
    run_demo(folder, "--all")
