"""`amn` on GGUF files: what it lists, tells and writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import anamnesis as an
from anamnesis.base.dtypes import DTypeName
from helpers.cli_runs import amn
from helpers.gguf_handmade import F32, STRING, U8, U32, Array, Tensor, gguf_bytes

KEYS = {
    "general.architecture": (STRING, "llama"),
    "general.name\x1b[2J": (STRING, "a\nb"),
    "llama.rope.freq_base": (F32, 1e-5),
    "tokenizer.ggml.tokens": Array(STRING, [f"<{i}>" for i in range(300)]),
    "tokenizer.ggml.pre": Array(U8, [1, 2]),
    "template": (STRING, "x" * 200),
}
TENSORS = {
    "token_embd.weight": Tensor((64, 5), 8, bytes(34 * 10)),
    "output_norm.weight": Tensor((64,), 0, bytes(256)),
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m-Q8_0.gguf"
    path.write_bytes(gguf_bytes(KEYS, TENSORS))
    return path


def test_parse(model: Path) -> None:
    done = amn("parse", model.name, cwd=model.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "Parsed m-Q8_0.gguf (GGUF v3)",
        "  Tensors:    2",
        "  Total size: 596 B",
        "  Dtypes:     Q8_0 (1), F32 (1)",
        "  Metadata:   6 keys (--metadata lists them)",
        "",
        "  token_embd.weight              Q8_0 [5, 64]        340 B",
        "  output_norm.weight             F32 [64]            256 B",
    ]


def test_parse_metadata(model: Path) -> None:
    done = amn("parse", "--metadata", model)
    assert done.returncode == 0
    rows = [line.split(maxsplit=1) for line in done.stdout.splitlines() if line[:4] == " " * 4]
    assert {key: " ".join(rest.split()) for key, rest in rows} == {
        "general.architecture": "string llama",
        r"general.name\x1b[2J": r"string a\nb",
        "llama.rope.freq_base": "f32 1e-05",
        "tokenizer.ggml.tokens": "array of 300 strings ['<0>', '<1>', '<2>', '<3>', '<4>', …]",
        "tokenizer.ggml.pre": "array of 2 u8s [1, 2]",
        "template": f"string {'x' * 100}… (200 characters)",
    }


def test_json_gives_all(model: Path) -> None:
    told = json.loads(amn("parse", "--json", model).stdout)
    assert told["format"] == "GGUF v3"
    assert told["metadata"]["tokenizer.ggml.tokens"] == [f"<{i}>" for i in range(300)]
    assert told["metadata"]["template"] == "x" * 200
    assert [(t["name"], t["dtype"], t["shape"]) for t in told["tensors"]] == [
        ("token_embd.weight", "Q8_0", [5, 64]),
        ("output_norm.weight", "F32", [64]),
    ]
    told = json.loads(amn("inspect", "--json", model).stdout)
    assert (told["arch"], told["alignment"]) == ("llama", 32)
    assert told["metadata"]["tokenizer.ggml.tokens"] == "[array of 300 strings]"


def test_remember(model: Path) -> None:
    done = amn("remember", model.name, cwd=model.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert "left out" not in done.stdout  # of the keys, which a header carries
    with an.parse(model.with_name("m-bf16.safetensors")) as out:
        assert "tokenizer.ggml.tokens" not in out.metadata  # as text, it would be long
        assert [(t.name, t.scheme, t.shape) for t in out.values()] == [
            ("output_norm.weight", "F32", (64,)),
            ("token_embd.weight", "BF16", (5, 64)),
        ]


def test_remember_writes_no_blocks_into_gguf_either(model: Path) -> None:
    """Its format could keep them, but what is remembered is at full precision."""
    pairs: tuple[tuple[DTypeName, str], ...] = (("bf16", "BF16"), ("f32", "F32"))
    for to, dtype in pairs:
        done = amn("remember", model.name, "--to", to, "-o", f"{to}.gguf", cwd=model.parent)
        assert done.returncode == 0, done.stderr
        with an.parse(model) as source, an.parse(model.with_name(f"{to}.gguf")) as out:
            assert [t.scheme for t in out.values()] == [dtype, "F32"]
            assert dict(out.metadata) == dict(source.metadata)
            for name, weight in source.items():
                assert (out[name].numpy(to) == weight.numpy(to)).all()


def test_unknown_type_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes({"x": (U32, 1)}, {"blk.0.w": Tensor((32,), 31, bytes(18))}))
    assert "Q4_0_4_4 (type 31)" in amn("inspect", path).stdout
    done = amn("remember", path)
    assert done.returncode == 1
    assert "'blk.0.w' is of GGML Q4_0_4_4 (type 31), which ggml has removed" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_ollama(model: Path, tmp_path: Path) -> None:
    digest = "0123456789abcdef" * 4
    store = tmp_path / "store"
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}"}
    manifest = store / "manifests" / "registry.ollama.ai" / "library" / "llama3.2" / "1b"
    for path in (manifest, store / "blobs" / f"sha256-{digest}"):
        path.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({"layers": [layer]}))
    model.rename(store / "blobs" / f"sha256-{digest}")
    env = {"OLLAMA_MODELS": str(store)}
    assert "Arch:        llama" in amn("inspect", "ollama:llama3.2:1b", env=env).stdout
    done = amn("parse", "ollama:llama3.2:1b", env=env)
    assert done.stdout.startswith("Parsed ollama:llama3.2:1b (GGUF v3)")
    done = amn("remember", "ollama:llama3.2:1b", env=env, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "llama3.2-1b-bf16.safetensors").exists()
    done = amn("inspect", "ollama:llama3.2", env=env)
    assert done.returncode == 1
    assert done.stderr.startswith("amn: error: ollama:llama3.2: no such model in ")
    assert done.stderr.endswith("which has llama3.2:1b\n")
