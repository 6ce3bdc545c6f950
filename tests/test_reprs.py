"""What an interactive session shows of each object: one short line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import anamnesis as an

SHOWN: dict[str, tuple[Callable[[an.Model], object], str]] = {
    "model": (lambda m: m, "<anamnesis.Model of 2 weights, safetensors: 'a.weight', 'b'>"),
    "tensor": (lambda m: m["a.weight"], "Tensor('a.weight', F32, [256, 256])"),
    "stored": (lambda m: m.stored["b"], "<StoredTensor 'b', F32 [3]>"),
    "inspection": (
        lambda m: m.inspect(),
        "<anamnesis.Inspection: safetensors, 2 tensors, none quantised, 262.2 KB>",
    ),
    "plan": (
        lambda m: m.plan("fp8-block"),
        "<anamnesis.Plan of 3 tensors (1 f32, 1 fp8-block) in safetensors, 1 file, 65.8 KB>",
    ),
    "fit": (
        lambda m: m.fit(target_size="60KB"),
        "<anamnesis.Fit: 1 Q6_K; 54.0 KB, 6.564 bits a weight>",
    ),
    "report": (
        lambda m: m.convert("out.npz"),
        "<anamnesis.Report: '…/out.npz', npz, 262.7 KB, in 2 tensors, out 2, dropped 0>",
    ),
    "scan": (
        lambda m: m.convert("out.pth") and an.scan("out.pth"),
        "<anamnesis.Scan: safe, 1 pickle, 3 globals, 0 problems>",
    ),
}


@pytest.mark.parametrize("kind", SHOWN)
def test_one_line(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    values = np.linspace(-1, 1, 256 * 256, dtype=np.float32).reshape(256, 256)
    an.save({"a.weight": values, "b": np.ones(3, np.float32)}, "a.safetensors")
    make, wanted = SHOWN[kind]
    with an.parse("a.safetensors") as model:
        told = repr(make(model)).replace(str(tmp_path), "…")
    assert re.sub(r"\d+\.\d KB", "KB", told) == re.sub(r"\d+\.\d KB", "KB", wanted)


def test_other_names_of_verbs() -> None:
    assert (an.quantize, an.dequantize) == (an.forget, an.remember)
    assert (an.Model.quantize, an.Model.dequantize) == (an.Model.forget, an.Model.remember)
