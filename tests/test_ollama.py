"""`ollama:` names: to the one blob that is the model, or a message that helps."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import anamnesis as an
from anamnesis.checkpoint.ollama import OllamaName, resolve
from anamnesis.cli.app import cli
from anamnesis.cli.output_names import derived_path
from helpers.gguf_handmade import Tensor, gguf_bytes

HASH = "0123456789abcdef" * 4
MODEL = "application/vnd.ollama.image.model"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with one blob and no manifest."""
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "store"))
    blob = tmp_path / "store" / "blobs" / f"sha256-{HASH}"
    blob.parent.mkdir(parents=True)
    blob.write_bytes(gguf_bytes({}, {"x": Tensor((4,), 24, b"abcd")}))
    return tmp_path / "store"


def layers(digest: Any = f"sha256:{HASH}") -> list[Any]:
    other = {"mediaType": "application/vnd.ollama.image.license", "digest": f"sha256:{'f' * 64}"}
    return [other, {"mediaType": MODEL, "digest": digest, "size": 10}, other]


def add(store: Path, where: str, manifest: Any = None) -> Path:
    path = store / "manifests" / where
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"layers": layers()} if manifest is None else manifest))
    return path


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("ollama:llama3.2:1b", "registry.ollama.ai/library/llama3.2/1b"),
        ("ollama:llama3.2", "registry.ollama.ai/library/llama3.2/latest"),
        ("ollama:ns/name", "registry.ollama.ai/ns/name/latest"),
        ("ollama:ns/name:tag", "registry.ollama.ai/ns/name/tag"),
        ("ollama:hf.co/org/Repo-GGUF:Q4_K_M", "hf.co/org/Repo-GGUF/Q4_K_M"),
        pytest.param(
            "ollama:localhost:5000/ns/name:v1",
            "localhost:5000/ns/name/v1",
            marks=pytest.mark.skipif(sys.platform == "win32", reason="no colons in file names"),
        ),
    ],
)
def test_resolves(url: str, where: str, store: Path) -> None:
    add(store, where)
    assert resolve(url) == str(store / "blobs" / f"sha256-{HASH}")
    with an.parse(url) as model:
        assert list(model) == ["x"]
    assert OllamaName.parse(f"ollama:{OllamaName.parse(url)}") == OllamaName.parse(url)


def test_default_store(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OLLAMA_MODELS")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / ".ollama").mkdir()
    store.rename(tmp_path / ".ollama" / "models")
    add(tmp_path / ".ollama" / "models", "registry.ollama.ai/library/m/latest")
    assert str(resolve("ollama:m")).endswith(HASH)


@pytest.mark.parametrize(
    "url",
    [
        *("ollama:", "ollama:/", "ollama::tag", "ollama:name:", "ollama:../../etc/passwd"),
        *("ollama:a/../b:c", "ollama:a/b/c/d", "ollama:name:..", "ollama:na\0me", "ollama:.x"),
        *("ollama:name:a/b", "ollama:a b", "ollama:name:" + "t" * 200, "ollama:\\x", "ollama:a//b"),
    ],
)
def test_bad_names(url: str, store: Path) -> None:
    with pytest.raises(an.ParseError, match="not the name of an Ollama model"):
        resolve(url)


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes among files")
def test_a_manifest_that_is_no_file(store: Path) -> None:
    path = add(store, "registry.ollama.ai/library/m/t")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(FileNotFoundError, match=r"library/m/t, its manifest, is no file"):
        resolve("ollama:m:t")


def test_missing_model_lists_what_is_there(store: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there are none in"):
        resolve("ollama:nope")
    add(store, "registry.ollama.ai/library/llama3.2/1b")
    add(store, "hf.co/org/repo/Q4")
    add(store, "registry.ollama.ai/ns/other/latest")
    with pytest.raises(FileNotFoundError) as raised:
        resolve("ollama:llama3.2")
    assert "has hf.co/org/repo:Q4, llama3.2:1b, ns/other:latest" in str(raised.value)
    assert raised.value.filename == "ollama:llama3.2"


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="homes of users by number")
def test_user_without_a_home(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OLLAMA_MODELS")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 987_654)
    with pytest.raises(FileNotFoundError, match="OLLAMA_MODELS names the store"):
        resolve("ollama:x")


def test_missing_blob(store: Path) -> None:
    add(store, "registry.ollama.ai/library/m/latest", {"layers": layers(f"sha256:{'a' * 64}")})
    with pytest.raises(FileNotFoundError, match="ollama pull m:latest"):
        resolve("ollama:m")


@pytest.mark.parametrize(
    "digest",
    [
        *("", "sha256:", f"sha256:{HASH}0", f"sha256:{HASH[1:]}", f"md5:{HASH}", None, 7, [HASH]),
        *(f"sha256:{HASH.upper()}", "sha256:../../../../etc/passwd", f"sha256:{HASH}\n", HASH),
    ],
)
def test_bad_digests(digest: Any, store: Path) -> None:
    add(store, "registry.ollama.ai/library/m/latest", {"layers": layers(digest)})
    with pytest.raises(an.ParseError, match="digest must be"):
        resolve("ollama:m")


@pytest.mark.parametrize("manifest", [{}, {"layers": {}}, {"layers": "x"}, [], "x", {"layers": 1}])
def test_bad_manifests(manifest: Any, store: Path) -> None:
    add(store, "registry.ollama.ai/library/m/latest", manifest)
    with pytest.raises(an.ParseError):
        resolve("ollama:m")


@pytest.mark.parametrize("n", [0, 2])
def test_one_model_layer(n: int, store: Path) -> None:
    manifest = {"layers": [*layers()[:1], None, 1, *[layers()[1]] * n]}
    add(store, "registry.ollama.ai/library/m/latest", manifest)
    with pytest.raises(an.UnsupportedError, match=f"has {n} layers"):
        resolve("ollama:m")


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege")
@pytest.mark.parametrize("what", ["manifest", "blob"])
def test_links_out_of_the_store(what: str, store: Path, tmp_path: Path) -> None:
    manifest = add(store, "registry.ollama.ai/library/m/latest")
    link = manifest if what == "manifest" else store / "blobs" / f"sha256-{HASH}"
    outside = tmp_path / "outside"
    link.rename(outside)
    os.symlink(outside, link)
    with pytest.raises(an.ParseError, match="leads out of the store"):
        resolve("ollama:m")


@pytest.mark.parametrize(
    ("path", "output"),
    [
        ("ollama:llama3.2:1b", "llama3.2-1b-bf16.safetensors"),
        ("ollama:llama3.2", "llama3.2-bf16.safetensors"),
        ("ollama:hf.co/org/Repo-GGUF:Q4_K_M", "Repo-GGUF-bf16.safetensors"),
        ("m-Q4_K_M-00001-of-00003.gguf", "m-bf16.safetensors"),
        ("m-Q4_K_M.gguf", "m-bf16.safetensors"),
    ],
)
def test_output_names(path: str, output: str) -> None:
    assert derived_path(path, "bf16") == output


def test_the_commands_take_names(store: Path) -> None:
    add(store, "registry.ollama.ai/library/tiny/latest")
    for command in ("parse", "inspect", "scan"):
        done = CliRunner().invoke(cli, [command, "ollama:tiny"])
        assert done.exit_code == 0, done.output
        missing = CliRunner().invoke(cli, [command, "ollama:other"])
        assert missing.exit_code == (2 if command == "scan" else 1)
        assert "ollama:other" in missing.stderr
