"""The examples that help and the site's pages of commands show are run, in a shell."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import anamnesis as an
from anamnesis.cli.app import COMMANDS, cli
from anamnesis.cli.demo_models import DEMOS
from helpers.cli_runs import environment

EXIT = {
    "amn scan uploads/ --untrusted": 1,
    "amn scan -q uploads/": 1,
    "amn scan *.pkl --json": 1,
    "amn diff Qwen3-8B/ Qwen3-8B-FP8/": 1,
    "amn diff Qwen3-8B/ model-Q4_K_M.gguf --values": 1,
    "amn diff Qwen3-8B/ Qwen3-8B-FP8/ --values --only '*.mlp.*' --json": 1,
}
# Writes for a shell that need not be there; finishes what other commands have begun.
SKIPPED = ("completion fish", "amn commit")


def _add_adapters(root: Path) -> None:
    """Write an adapter for the models, and one of kohya's for a file."""
    name, rng = "model.layers.0.self_attn.o_proj", np.random.default_rng(0)
    with an.parse(root / "Qwen3-8B") as model:
        rows, cols = model[f"{name}.weight"].shape
    a, b = rng.random((2, cols), np.float32), rng.random((rows, 2), np.float32)
    (root / "adapter").mkdir()
    factors = {f"base_model.model.{name}.lora_{x}.weight": f for x, f in (("A", a), ("B", b))}
    an.save(factors, root / "adapter" / "adapter_model.safetensors")
    told = {"peft_type": "LORA", "r": 2, "lora_alpha": 4}
    (root / "adapter" / "adapter_config.json").write_text(json.dumps(told))
    an.save({"to_q.weight": np.zeros((4, 4), np.float32)}, root / "sd.safetensors")
    ones = {"down": np.ones((1, 4), np.float32), "up": np.ones((4, 1), np.float32)}
    kohyas = {f"lora_unet_to_q.lora_{x}.weight": factor for x, factor in ones.items()}
    an.save(kohyas, root / "style.safetensors")


def examples() -> list[str]:
    found = []
    for name in COMMANDS:
        text = CliRunner().invoke(cli, [name, "--help"]).stdout
        section = re.search(r"\nExamples:\n((?:  .*\n)+)", text)
        assert section is not None
        found += [line.strip() for line in section[1].splitlines()]
    return [line for line in found if not any(word in line for word in SKIPPED)]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the examples name."""
    root = tmp_path_factory.mktemp("inputs")
    for demo in DEMOS.values():
        for name, raw in demo.make().items():
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_bytes(raw)
    (root / "llama-tiny").rename(root / "Qwen3-8B")
    (root / "llama-tiny-FP8").rename(root / "Qwen3-8B-FP8")
    (root / "sd-tiny.ckpt").rename(root / "sd.ckpt")
    (root / "llama-tiny-Q4_K_M.gguf").rename(root / "model.gguf")
    shutil.copy(root / "model.gguf", root / "model-Q4_K_M.gguf")
    (root / "loras").mkdir()
    for i in range(3):
        values = {"up_proj.weight": np.full((64, 64), i, np.float32)}
        an.save(values, root / "loras" / f"lora-{i}.safetensors")
    shutil.copy(root / "uploads" / "settings.pkl", root / "settings.pkl")
    shutil.copy(root / "uploads" / "attack.pkl", root / "attack.pkl")
    _add_adapters(root)
    an.convert(root / "Qwen3-8B", root / "model-bf16.safetensors", "safetensors")
    an.convert(root / "model-bf16.safetensors", root / "fp8.safetensors", "fp8-block")
    an.convert(root / "model-bf16.safetensors", root / "model.pth")
    an.convert(root / "model-bf16.safetensors", root / "upload.pth")
    an.convert(root / "Qwen3-8B", root / "f16.gguf", "gguf-f16")
    _put_into_store(root / "model.gguf", root / "store")
    (root / "model-bf16.safetensors").rename(root / "plain.safetensors")
    return root


STAND_INS = {
    "model.safetensors": "plain.safetensors",
    "model-bf16.safetensors": "plain.safetensors",
    "model-fp8.safetensors": "fp8.safetensors",
    "model-f16.gguf": "f16.gguf",
}


def _put_into_store(model: Path, store: Path) -> None:
    """Keep a GGUF as Ollama does."""
    digest = "0123456789abcdef" * 4
    (store / "blobs").mkdir(parents=True)
    shutil.copy(model, store / "blobs" / f"sha256-{digest}")
    manifest = store / "manifests" / "registry.ollama.ai" / "library" / "llama3.2" / "1b"
    manifest.parent.mkdir(parents=True)
    kind = "application/vnd.ollama.image.model"
    layer = {"mediaType": kind, "digest": f"sha256:{digest}", "size": 1}
    manifest.write_text(json.dumps({"layers": [layer]}))


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="only on Linux and macOS: needs a shell")
@pytest.mark.parametrize("line", examples())
def test_it_runs(inputs: Path, tmp_path: Path, line: str) -> None:
    here = tmp_path / "here"
    shutil.copytree(inputs, here)
    for name, stand_in in STAND_INS.items():
        if re.search(rf"amn \w+ {name}", line):
            shutil.copy(here / stand_in, here / name)
    if "-o Qwen3-8B/" in line:
        shutil.rmtree(here / "Qwen3-8B")
    scripts = sysconfig.get_path("scripts")
    path = f"{scripts}:{environment()['PATH']}"
    for folder in (".local/share/bash-completion/completions", ".zfunc"):
        (here / folder).mkdir(parents=True)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", line.replace("/tmp/demo", "demo")],
        cwd=here,
        env=environment(PATH=path, OLLAMA_MODELS=str(here / "store"), HOME=str(here)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == EXIT.get(line, 0), done.stderr
