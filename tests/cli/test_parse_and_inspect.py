"""`amn parse` and `amn inspect`: what they print, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import anamnesis as an
from helpers import whole_gguf
from helpers.cli_runs import ORPHAN, SMALL, amn, amn_process
from helpers.handmade import Entry, write_index

LSTM: dict[str, Entry] = {
    "rnn.weight_ih_l0": ("F32", (16, 1), bytes(64)),
    "rnn.weight_hh_l0": ("F32", (16, 16), bytes(1024)),
    "rnn.bias_ih_l0": ("F32", (16,), bytes(64)),
}
HOSTILE = "evil\x1b]0;title\x07\nForged: line\u202e"

WriteModel = Callable[..., Path]


def test_parse_lists_stored_tensors(tmp_path: Path, write_model: WriteModel) -> None:
    write_model(LSTM)
    done = amn("parse", "model.safetensors", cwd=tmp_path)
    assert done.stderr == ""
    assert done.returncode == 0
    assert done.stdout == (
        "Parsed model.safetensors (safetensors)\n"
        "  Tensors:    3\n"
        "  Total size: 1.2 KB\n"
        "  Dtypes:     F32\n"
        "\n"
        "  rnn.weight_ih_l0               F32 [16, 1]         64 B\n"
        "  rnn.weight_hh_l0               F32 [16, 16]        1.0 KB\n"
        "  rnn.bias_ih_l0                 F32 [16]            64 B\n"
    )


def test_parse_counts_dtypes_and_cuts_metadata(tmp_path: Path, write_model: WriteModel) -> None:
    write_model(SMALL | LSTM, metadata={"format": "pt", "config": "x" * 1000})
    lines = amn("parse", "model.safetensors", cwd=tmp_path).stdout.splitlines()
    assert lines[3] == "  Dtypes:     F32 (4), F8_E4M3 (1), BF16 (1)"
    assert lines[4] == "  Metadata:   format=pt, config (1,000 characters)"


def test_parse_cuts_no_name_in_a_pipe(tmp_path: Path, write_model: WriteModel) -> None:
    name = "long." * 60 + "weight"
    write_model({name: ("U8", (1,), b"x"), "short": ("U8", (1,), b"x")})
    lines = amn("parse", "model.safetensors", cwd=tmp_path).stdout.splitlines()
    assert lines[-2] == f"  {name}  {'U8 [1]':<18}  1 B"
    assert lines[-1] == f"  {'short':<100}  {'U8 [1]':<18}  1 B"


def test_parse_json(tmp_path: Path, write_model: WriteModel) -> None:
    path = write_model(LSTM, metadata={"format": "pt"})
    done = amn("parse", path, "--json")
    told = json.loads(done.stdout)
    start = path.stat().st_size - 1152
    assert {key: told[key] for key in told if key != "tensors"} == {
        "path": str(path),
        "format": "safetensors",
        "files": [str(path)],
        "n_files": 1,
        "n_tensors": 3,
        "n_bytes": 1152,
        "dtypes": {"F32": 3},
        "metadata": {"format": "pt"},
    }
    assert told["tensors"][1] == {
        "name": "rnn.weight_hh_l0",
        "dtype": "F32",
        "shape": [16, 16],
        "offset": start + 64,
        "n_bytes": 1024,
        "file": str(path),
    }


def test_parse_a_directory(tmp_path: Path, write_model: WriteModel) -> None:
    write_model({"a": LSTM["rnn.bias_ih_l0"]}, name="m/model-00001-of-00002.safetensors")
    write_model({"b": LSTM["rnn.bias_ih_l0"]}, name="m/model-00002-of-00002.safetensors")
    shards = {n: f"model-0000{i}-of-00002.safetensors" for i, n in enumerate("ab", 1)}
    write_index(tmp_path / "m", shards)
    assert "\n  Files:      2\n  Tensors:    2\n" in amn("parse", "m/", cwd=tmp_path).stdout
    told = json.loads(amn("parse", "m", "--json", cwd=tmp_path).stdout)
    assert {t["name"]: t["file"] for t in told["tensors"]} == shards


@pytest.mark.parametrize("command", ["inspect", "info"])
def test_inspect_prints_the_inspection(command: str, write_model: WriteModel) -> None:
    path = write_model(SMALL)
    done = amn(command, path, "--to", "f32")
    with an.parse(path) as model:
        assert done.stdout == f"{model.inspect('f32')}\n"
    assert done.stdout.startswith("Format:      Per-channel FP8 (E4M3)\n")
    assert "-> 140 B (F32)" in done.stdout
    assert (done.stderr, done.returncode) == ("", 0)


def test_inspect_aligns_several_schemes(write_model: WriteModel) -> None:
    other: dict[str, Entry] = {
        "x.weight": ("F8_E4M3", (2, 2), bytes(4)),
        "x.weight_scale": ("F32", (), bytes(4)),
    }
    lines = amn("inspect", write_model(SMALL | other)).stdout.splitlines()
    assert lines[0] == "Format:      Per-channel FP8 (E4M3): 1 tensor"
    assert lines[1] == "             Per-tensor FP8 (E4M3): 1 tensor"


def test_inspect_heads_several_inputs(tmp_path: Path, write_model: WriteModel) -> None:
    write_model(LSTM, name="a.safetensors")
    write_model(SMALL, name="b.safetensors")
    text = amn("inspect", "a.safetensors", "b.safetensors", cwd=tmp_path).stdout
    assert text.startswith("a.safetensors\nFormat:      safetensors, F32\n")
    assert "\n\nb.safetensors\nFormat:      Per-channel FP8 (E4M3)\n" in text


def test_inspect_json(tmp_path: Path, write_model: WriteModel) -> None:
    path = write_model(SMALL)
    told = json.loads(amn("inspect", path, "--json").stdout)
    with an.parse(path) as model:
        facts = {"path": str(path), **model.inspect().to_dict(), "files": [str(path)]}
    assert told == json.loads(json.dumps(facts))
    both = amn("inspect", path, tmp_path / "none", "--json")
    first, second = json.loads(both.stdout)
    assert first == told
    assert second["path"] == str(tmp_path / "none")
    assert "No such file" in second["error"]["message"]
    assert both.returncode == 1


def test_parse_shows_short_values_under_long_names(write_model: WriteModel) -> None:
    key = "llama.attention.layer_norm_rms_epsilon"
    path = write_model(LSTM, metadata={key: "1e-05"})
    assert f"  Metadata:   {key}=1e-05" in amn("parse", path).stdout.splitlines()


def test_inspect_counts_what_cannot_be_decoded(write_model: WriteModel) -> None:
    """Its bytes count as what they are, and all problems are one block."""
    tensors: dict[str, Entry] = {
        "norm.weight": ("F32", (4,), bytes(16)),
        "stray.weight_scale": ("F32", (), bytes(4)),
    }
    for i in range(2):
        tensors[f"experts.{i}.Qidxs"] = ("I16", (20, 8), bytes(320))
    path = write_model(tensors)
    done = amn("inspect", path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[:5] == [
        "Format:      safetensors, QuIP#, F32",
        "Passthrough: 1 tensor (norms)",
        "Size:        660 B (QuIP#, F32)",
        "Problems:    2 weights in QuIP#, 640 B, cannot be decoded yet",
        "             use the original weights, or a copy of the model in another encoding",
    ]
    (stray,) = done.stdout.splitlines()[5:]
    assert "stray.weight_scale (F32 []) looks like a part of a quantised weight" in stray
    told = json.loads(amn("inspect", path, "--json").stdout)
    assert told["unread"] == {"QuIP#": 2}
    assert told["unread_bytes"] == {"QuIP#": 640, "": 4}
    assert told["n_parameters"] is None
    assert len(told["problems"]) == 3


def test_inspect_counts_parameters(write_model: WriteModel) -> None:
    tensors: dict[str, Entry] = {
        "x.weight": ("F8_E4M3", (4, 8), bytes(32)),
        "x.weight_scale": ("F32", (), bytes(4)),
        "x.bias": ("BF16", (4,), bytes(8)),
        "position_ids": ("I64", (2,), bytes(16)),
    }
    path = write_model(tensors)
    lines = amn("inspect", path).stdout.splitlines()
    assert "Parameters:  36, 13.33 bits each" in lines
    assert "Lethe took:  ~28 B, when the model was quantised" in lines
    assert not any("grows" in line for line in lines)
    lines = amn("inspect", path, "--to", "f32").stdout.splitlines()
    assert "Lethe took:  ~28 B, when the model was quantised" in lines
    assert "Output:      grows by 92 B" in lines
    told = json.loads(amn("inspect", path, "--json").stdout)
    assert (told["n_parameters"], told["lethe_took"]) == (36, 28)


@pytest.mark.parametrize("command", ["parse", "inspect"])
def test_json_lists_files(tmp_path: Path, write_model: WriteModel, command: str) -> None:
    write_model(LSTM, name="a.safetensors")
    write_model(SMALL, name="b.safetensors")
    told = json.loads(amn(command, tmp_path, "--json").stdout)
    assert told["files"] == ["a.safetensors", "b.safetensors"]
    assert told["n_files"] == 2


def test_inspect_takes_a_block_size(write_model: WriteModel) -> None:
    ambiguous: dict[str, Entry] = {
        "x.weight": ("F8_E4M3", (96, 96), bytes(96 * 96)),
        "x.weight_scale_inv": ("F32", (2, 2), bytes(16)),
    }
    path = write_model(ambiguous)
    assert "--block-size" in amn("inspect", path).stdout
    text = amn("inspect", path, "--block-size", "64x64").stdout
    assert text.startswith("Format:      Fine-grained FP8 (E4M3), 64x64 blocks\n")


def test_reasons_of_what_is_dropped_stay_within_the_lines(
    tmp_path: Path, write_model: WriteModel
) -> None:
    plain = write_model({"blocks.0.up.weight": ("F32", (32, 32), bytes(4096))})
    with an.parse(plain) as model:
        model.forget(tmp_path / "coded.safetensors", "comfy-fp8")
    lines = amn("inspect", "coded.safetensors", cwd=tmp_path).stdout.splitlines()
    assert all(len(line) <= 80 for line in lines)
    told = "Dropped:     2 tensors (marker of a ComfyUI layer, range of activations or of a"
    assert lines[3:5] == [told, f"{'':13}cache)"]


def test_inspect_takes_what_layers_are(write_model: WriteModel) -> None:
    path = write_model(
        {
            "h.0.mlp.c_fc.weight": ("I8", (6, 2), bytes(12)),
            "h.0.mlp.c_fc.SCB": ("F32", (6,), bytes(24)),
        }
    )
    assert "conv1d" in amn("inspect", path).stdout
    turned = amn("inspect", path, "--conv1d").stdout
    assert turned.startswith("Format:      BitsAndBytes INT8, transposed\n")
    stays = amn("inspect", path, "--no-conv1d").stdout
    assert stays.startswith("Format:      BitsAndBytes INT8\n")


@pytest.mark.parametrize("command", ["parse", "inspect", "remember"])
def test_hostile_names_are_escaped(tmp_path: Path, write_model: WriteModel, command: str) -> None:
    tensors = {HOSTILE: LSTM["rnn.bias_ih_l0"], f"{HOSTILE}.weight_scale": ORPHAN, **SMALL}
    write_model(tensors, metadata={HOSTILE: HOSTILE})
    done = amn(command, "model.safetensors", cwd=tmp_path)
    printed = done.stdout + done.stderr
    assert not [c for c in printed if not c.isprintable() and c != "\n"]
    assert not any(line.startswith("Forged") for line in printed.splitlines())
    assert r"evil\x1b]0;title\x07\nForged: line\u202e" in printed


def test_json_keeps_hostile_names(write_model: WriteModel) -> None:
    path = write_model({HOSTILE: LSTM["rnn.bias_ih_l0"]})
    done = amn("parse", path, "--json")
    assert done.stdout.isascii()
    assert json.loads(done.stdout)["tensors"][0]["name"] == HOSTILE


def test_a_poor_encoding_is_no_failure(write_model: WriteModel) -> None:
    path = write_model({"größe": LSTM["rnn.bias_ih_l0"]})
    done = amn_process("parse", path, env={"PYTHONIOENCODING": "ascii"})
    assert r"gr\xf6\xdfe" in done.stdout
    assert done.returncode == 0


def test_parse_a_torch_file(tmp_path: Path) -> None:
    state = {
        "rnn.weight_ih_l0": torch.zeros(16, 1),
        "rnn.weight_hh_l0": torch.zeros(16, 16),
        "linear.weight": torch.zeros(10, 16),
    }
    torch.save(state, tmp_path / "model.pth")
    assert amn("parse", "model.pth", cwd=tmp_path).stdout == (
        "Parsed model.pth (PyTorch state_dict)\n"
        "  Tensors:    3\n"
        "  Total size: 1.7 KB\n"
        "  Dtypes:     F32\n"
        "  Byte order: little-endian\n"
        "\n"
        "  rnn.weight_ih_l0               F32 [16, 1]         64 B\n"
        "  rnn.weight_hh_l0               F32 [16, 16]        1.0 KB\n"
        "  linear.weight                  F32 [10, 16]        640 B\n"
    )


def test_inspect_shows_an_importance_matrix(tmp_path: Path) -> None:
    (tmp_path / "imatrix.gguf").write_bytes(whole_gguf.imatrix_gguf("moe"))
    (tmp_path / "imatrix.dat").write_bytes(whole_gguf.imatrix_dat("qwen2"))
    done = amn("inspect", "imatrix.gguf", cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert lines[:7] == [
        "Format:      importance matrix, GGUF",
        "Datasets:    wiki.train.raw, more.txt",
        "Chunks:      12 of 512 tokens",
        "Weights:     23; 3 matrices never used",
        "",
        "  weight                       columns  matrices    used      mean   largest",
        "  blk.0.attn_k.weight              256         1       1     0.185      5.72",
    ]
    assert "  blk.1.ffn_down_exps.weight       256         4       3     0.359      5.89" in lines
    told = json.loads(amn("inspect", "imatrix.dat", "--json", cwd=tmp_path).stdout)
    first = told["entries"][0]
    assert (told["format_id"], first["counts"], first["n_used"]) == ("imatrix-dat", [0], 0)
    (tmp_path / "imatrix.dat").write_bytes(whole_gguf.imatrix_dat("qwen2")[:-100])
    done = amn("inspect", "imatrix.dat", cwd=tmp_path)
    assert done.returncode == 1
    assert "imatrix.dat: " in done.stderr
    assert "it is cut short" in done.stderr
    done = amn("inspect", "imatrix.gguf", "--max-alloc", "16", cwd=tmp_path)
    assert "[max_single_alloc]" in done.stderr
