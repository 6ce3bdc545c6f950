"""Whole files as llama-quantize makes them: its digests, which a tool in tools/ records."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from anamnesis.schemes.core.codes import Importance
from anamnesis.schemes.families.ggml.encode import Imatrix
from anamnesis.schemes.families.ggml.header import read_override
from helpers import whole_gguf
from helpers.cli_runs import amn
from helpers.whole_gguf import RUNS, Run

RECORDED = json.loads(
    (Path(__file__).parents[1] / "schemes/recorded/llama_quantize.json").read_text()
)
THREADS = {"llama q4_k_m imatrix.gguf": (2, 3, 5, 8), "moe iq2_s imatrix.gguf": (2, 4, 7)}


def digest(raw: bytes) -> str:
    return sha256(raw).hexdigest()


def options(command: list[str]) -> dict[str, Any]:
    """Our options for a command line of the tool's."""
    found: dict[str, Any] = {}
    words = iter(command)
    for word in words:
        name = word.removeprefix("--").replace("-", "_")
        if name in ("pure", "leave_output_tensor"):
            found[name] = True
        elif name == "prune_layers":
            found[name] = [int(n) for n in next(words).split(",")]
        elif name == "tensor_type":
            pattern, _, type = next(words).partition("=")
            found.setdefault("overrides", {})[f"*{pattern.replace(chr(92), '')}*"] = type
        elif name == "override_kv":
            key, value = read_override(next(words))
            found.setdefault(name, {})[key] = value
        elif name in ("imatrix", "output_tensor_type", "token_embedding_type"):
            found[name] = next(words)
        else:
            assert word in ("--allow-requantize", "model.gguf"), word
    return found


def made(run: Run, folder: Path, threads: int) -> str:
    asked = options(whole_gguf.make(run, folder))
    an.convert("model.gguf", "out.gguf", f"gguf-{run.mix}", threads=threads, force=True, **asked)
    return digest((folder / "out.gguf").read_bytes())


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The header says what an importance matrix is called."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", whole_gguf.MODELS)
def test_inputs_are_as_recorded(name: str) -> None:
    assert digest(whole_gguf.gguf_bytes(name)) == RECORDED["models"][name]


def test_all_runs_are_recorded() -> None:
    assert list(RECORDED["outputs"]) == [run.id for run in RUNS]


@pytest.mark.sampled(13)
@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.id)
def test_same_bytes(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if run.id == "mixtral q3_k_m imatrix.dat":  # where the tool erases an expert that is never used

        def as_measured(self: Imatrix, name: str, _: tuple[int, ...]) -> Importance | None:
            values = self.entries.get(name)
            return None if values is None else Importance("", values)

        monkeypatch.setattr(Imatrix, "importance", as_measured)
    for threads in THREADS.get(run.id, (1,)):
        assert made(run, folder, threads) == RECORDED["outputs"][run.id], threads


def test_types_without_an_encoder_are_refused_where_the_matrix_has_no_entry(folder: Path) -> None:
    """The tool gives up on these: its matrix has no embeddings, and its own mixes need none."""
    whole_gguf.make(Run("qwen2", "iq2_xs", (), "gguf"), folder)
    asked: dict[str, Any] = {"imatrix": "imatrix.gguf", "pure": True}
    with pytest.raises(an.UnsupportedError, match=r"'token_embd\.weight' becomes IQ2_XS, which is"):
        an.convert("model.gguf", "out.gguf", "gguf-iq2_xs", **asked)
    an.convert("model.gguf", "out.gguf", "gguf-iq2_xs", token_embedding_type="q4_k", **asked)


def test_same_parts(folder: Path) -> None:
    run = whole_gguf.IN_PARTS
    whole_gguf.make(run, folder)
    an.convert("model.gguf", "in.gguf", "gguf", split_max_size=whole_gguf.PART_BYTES)
    first = min(path.name for path in folder.glob("in-*.gguf"))
    an.convert(first, "out.gguf", f"gguf-{run.mix}", keep_split=True)
    made = [digest(path.read_bytes()) for path in sorted(folder.glob("out-*.gguf"))]
    assert made == RECORDED["parts"]
    an.convert(first, "whole.gguf", f"gguf-{run.mix}")
    assert digest(Path("whole.gguf").read_bytes()) == RECORDED["outputs"]["llama q4_k_m"]


@pytest.mark.parametrize(
    ("value", "mix", "said"),
    [
        (np.nan, "q8_0", r"nan at \[3, 7\], which gguf-q8_0 cannot encode"),
        (np.inf, "f16", r"inf at \[3, 7\], which llama-quantize refuses, too"),
        (-np.inf, "bf16", r"-inf at \[3, 7\], which llama-quantize refuses, too"),
        (np.nan, "f32", r"nan at \[3, 7\], which llama-quantize refuses, too"),
        (7e4, "f16", r"too large a value at \[3, 7\], which llama-quantize refuses, too"),
        (3e38, "q4_0", r"the scale of the block at \[3, 0\] is too large for float16"),
    ],
)
def test_what_is_not_finite_is_refused(value: float, mix: str, said: str, folder: Path) -> None:
    values = np.full((8, 256), 0.25, np.float32)
    values[3, 7] = value
    arrays = {"blk.0.ffn_up.weight": values, "blk.0.attn_q.weight": np.ones((8, 256), "f4")}
    an.save(arrays, "bad.gguf", metadata={"general.architecture": "llama"})
    with pytest.raises(an.UnsupportedError, match=rf"blk\.0\.ffn_up\.weight: {said}"):
        an.convert("bad.gguf", "out.gguf", f"gguf-{mix}")
    assert not Path("out.gguf").exists()
    an.convert("bad.gguf", "out.gguf", "gguf-copy")


def test_same_bytes_from_the_command_line(folder: Path) -> None:
    run = next(run for run in RUNS if "--token-embedding-type" in run.options)
    command = whole_gguf.make(run, folder)
    amn("convert", *command, "--to", f"gguf-{run.mix}", "-o", "out.gguf")
    assert digest((folder / "out.gguf").read_bytes()) == RECORDED["outputs"][run.id]
