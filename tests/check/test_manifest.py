"""Manifests: hashes of bytes and of values, which prove that a repack is one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import xxhash
from click.testing import CliRunner

import anamnesis as an
from anamnesis.cli.app import cli
from helpers.pairs_of_models import BF16, llama, weights


def test_a_manifest_is_written_once_and_then_compared(tmp_path: Path) -> None:
    a, manifest = llama(tmp_path / "a"), tmp_path / "m.json"
    assert an.check(a, manifest=manifest).done["manifest"] == f"{manifest} is written"
    before = manifest.read_bytes()
    assert an.check(a, manifest=manifest).ok
    assert manifest.read_bytes() == before
    arrays = weights()
    arrays["model.norm.weight"][3] += 1
    (problem,) = an.check(llama(tmp_path / "b", arrays), manifest=manifest).problems
    assert (problem.kind, problem.names) == ("manifest", ("model.norm.weight",))
    del arrays["model.norm.weight"]
    found = an.check(llama(tmp_path / "c", arrays), manifest=manifest, values=False)
    assert "the model has not" in found.problems[-1].text


def test_the_same_values_in_another_encoding_have_one_hash(tmp_path: Path) -> None:
    manifest = tmp_path / "m.json"
    an.convert(llama(tmp_path / "a"), tmp_path / "q", "int4-asym")
    an.check(tmp_path / "q", manifest=manifest, values=False)
    an.remember(tmp_path / "q", tmp_path / "plain", "f32")
    an.convert(tmp_path / "q", tmp_path / "awq", "awq", lossless=True)
    for other in ("plain", "awq"):
        found = an.check(tmp_path / other, manifest=manifest, values=False)
        assert found.ok, str(found)
        assert "stored otherwise" in found.notes[-1].text
    an.remember(tmp_path / "q", tmp_path / "bf16")  # which rounds
    assert not an.check(tmp_path / "bf16", manifest=manifest, values=False).ok


def test_hashes_are_those_of_the_definition(tmp_path: Path) -> None:
    n = (1 << 18) + 5
    values = np.random.default_rng(0).standard_normal(n).astype(np.float32)
    arrays = {"f": values, "b": values.astype(BF16), "i": np.arange(7), "h": np.ones(3, np.float16)}
    an.save(arrays, tmp_path / "a.safetensors")
    an.check(tmp_path / "a.safetensors", manifest=tmp_path / "m.json")
    told = json.loads((tmp_path / "m.json").read_text())

    def tree(raw: bytes, size: int) -> str:
        cells = [raw[at : at + size] for at in range(0, len(raw), size)]
        return xxhash.xxh3_128(b"".join(map(xxhash.xxh3_128_digest, cells))).hexdigest()

    for name, array in arrays.items():
        assert told["tensors"][name]["hash"] == tree(array.tobytes(), 1 << 19)
    assert told["weights"]["f"]["hash"] == tree(values.tobytes(), 1 << 20)
    assert told["weights"]["b"] == {"shape": [n], "hash": told["tensors"]["b"]["hash"]}
    assert told["weights"]["i"]["hash"] == told["tensors"]["i"]["hash"]
    assert told["weights"]["h"]["hash"] == tree(np.ones(3, BF16).tobytes(), 1 << 19)


def test_threads_do_not_matter(tmp_path: Path) -> None:
    an.convert(llama(tmp_path / "a"), tmp_path / "q", "fp8-block")
    for threads in (1, 5):
        an.check(tmp_path / "q", manifest=tmp_path / f"{threads}.json", threads=threads)
    assert (tmp_path / "1.json").read_bytes() == (tmp_path / "5.json").read_bytes()


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        "no json",
        '{"anamnesis": "manifest 2", "hash": "xxh3_128", "tensors": {}, "weights": {}}',
        '{"anamnesis": "manifest 1", "hash": "xxh3_128", "tensors": [], "weights": {}}',
        '{"anamnesis": "manifest 1", "hash": "xxh3_128", "tensors": {"a": 1}, "weights": {}}',
    ],
)
def test_a_damaged_manifest_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.json").write_text(text)
    with pytest.raises(an.ParseError, match=r"m\.json"):
        an.check(llama(tmp_path / "a"), manifest=tmp_path / "m.json")
    assert (tmp_path / "m.json").read_text() == text


def test_a_manifest_that_cannot_be_written_is_an_error_before_the_work(tmp_path: Path) -> None:
    seen: list[int] = []
    with pytest.raises(an.OutputError, match="there is no folder"):
        an.check(
            llama(tmp_path / "a"),
            manifest=tmp_path / "none/m.json",
            progress=lambda done, total: seen.append(done),
        )
    assert not seen


def test_no_other_file_is_touched_and_none_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    (tmp_path / "m.json.amn-partial").write_text("another's")
    a = llama(tmp_path / "a")

    def fails(*_: object) -> None:
        raise OSError("full")

    for name in ("replace", "link"):
        monkeypatch.setattr(os, name, fails)
    with pytest.raises(OSError, match="full"):
        an.check(a, manifest=tmp_path / "m.json", values=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "m.json.amn-partial"]


def test_a_weight_that_cannot_be_decoded_is_a_problem_and_no_manifest(tmp_path: Path) -> None:
    an.convert(llama(tmp_path / "a"), tmp_path / "q", "gptq-4bit")
    with an.parse(tmp_path / "q") as model:
        part = next(p for n, p in model.stored.items() if n.endswith("g_idx"))
        at = part.offset
    with open(tmp_path / "q/model.safetensors", "r+b") as file:
        file.seek(at)
        file.write(b"\xff\xff\xff\x7f")
    found = an.check(tmp_path / "q", manifest=tmp_path / "m.json")
    assert {problem.kind for problem in found.problems} == {"manifest", "unreadable"}
    assert not (tmp_path / "m.json").exists()


def test_a_manifest_is_of_one_model(tmp_path: Path) -> None:
    for name in ("unet", "vae"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        file = tmp_path / name / "diffusion_pytorch_model.safetensors"
        an.save({"w": np.ones((2, 2), np.float32)}, file)
    parts = {"unet": ["diffusers", "UNet2DModel"], "vae": ["diffusers", "AutoencoderKL"]}
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": "Pipe", **parts}))
    args = ["check", str(tmp_path), "--manifest", str(tmp_path / "m.json")]
    done = CliRunner().invoke(cli, args)
    assert (done.exit_code, "--manifest is of one model, not of 2" in done.stderr) == (2, True)
    assert not (tmp_path / "m.json").exists()
