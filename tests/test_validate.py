"""tools/validate.py: models compared with the libraries of their encodings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import anamnesis as an
from helpers.pages import PROJECT
from helpers.pairs_of_models import llama

TOOL = PROJECT / "tools" / "validate.py"


def run(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, TOOL, path, "--weights", "2"], capture_output=True, text=True, check=False
    )


@pytest.mark.sampled(5)
@pytest.mark.oracle
@pytest.mark.parametrize(
    ("to", "library"),
    [
        ("gguf-q4_k_m", "gguf"),
        ("fp8-block", "transformers"),
        ("int4-asym", "compressed-tensors"),
        ("nvfp4", "compressed-tensors"),
        ("bnb-nf4", "bitsandbytes"),
        ("mlx-4bit", "mlx"),
        ("awq-4bit", "gptqmodel"),
    ],
)
def test_a_row_says_what_was_compared(tmp_path: Path, to: str, library: str) -> None:
    out = tmp_path / ("m.gguf" if to.startswith("gguf") else "m")
    an.convert(llama(tmp_path / "a"), out, to, loss=False)
    done = run(out)
    assert done.returncode == 0, done.stderr
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line[:1] == "|"]
    assert rows
    for _, _, by, n_weights, n_values, n_differing in rows:
        assert by.startswith(f"{library} ")
        assert int(n_weights) == 2
        assert int(n_values.replace(",", "")) > 10_000
        assert n_differing == "0"


@pytest.mark.oracle
def test_other_values_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the library decodes otherwise, here because its table is changed."""
    import gguf

    monkeypatch.syspath_prepend(str(TOOL.parent))
    from validate import validated

    an.convert(llama(tmp_path / "a"), tmp_path / "m.gguf", "gguf-q8_0", loss=False)
    real = gguf.quants.dequantize
    monkeypatch.setattr(
        gguf.quants, "dequantize", lambda *args: np.nextafter(real(*args), np.float32(9))
    )
    with an.parse(tmp_path / "m.gguf") as model:
        (row,) = validated(model, 1, 0)
    assert not isinstance(row, str)
    assert row.n_differing == row.n_values > 0


def test_a_model_without_codes_has_no_row(tmp_path: Path) -> None:
    done = run(llama(tmp_path / "a"))
    assert (done.returncode, done.stdout) == (2, "")
