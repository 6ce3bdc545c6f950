"""Every script in examples/ runs, and does what it says."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import anamnesis as an
from helpers.page_inputs import FP8_DIRECTORY, GGUF, UPLOADS, make_inputs

BF16 = ml_dtypes.bfloat16
EXAMPLES = Path(__file__).parents[1] / "examples"
TRIED = {
    *("convert_directory", "gguf_weights", "scan_uploads", "dequantize_arrays", "stream"),
    "merge_lora",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("examples")
    make_inputs(made)
    return made


def run(
    name: str, *args: object, folder: Path, returncode: int = 0
) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *map(str, args)]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    assert done.returncode == returncode, done.stderr.decode()
    return done


def test_every_example_is_tried() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == TRIED


@pytest.mark.slow
def test_convert_directory(folder: Path) -> None:
    done = run("convert_directory", FP8_DIRECTORY, "out", folder=folder)
    assert done.stdout.startswith(b"in 18 tensors, out 11, dropped 0")
    assert (folder / "out" / "config.json").is_file()
    assert run("convert_directory", FP8_DIRECTORY, "out", folder=folder).returncode == 0


def test_merge_lora(folder: Path) -> None:
    q_proj, down_proj = "model.layers.0.self_attn.q_proj", "model.layers.0.mlp.down_proj"
    rng = np.random.default_rng(7)
    factors = {
        f"base_model.model.{layer}.lora_{which}.weight": rng.standard_normal(shape, np.float32)
        for layer, n_in in ((q_proj, 256), (down_proj, 320))
        for which, shape in (("A", (4, n_in)), ("B", (256, 4)))
    }
    adapter = folder / "adapter"
    adapter.mkdir()
    save_file(factors, adapter / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 6}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    done = run("merge_lora", FP8_DIRECTORY, "adapter", "merged", folder=folder)
    assert done.stdout.startswith(b"in 18 tensors, out 11, dropped 0; 7 scales applied; 2 edited")
    with an.parse(folder / FP8_DIRECTORY) as base, an.parse(folder / "merged") as merged:
        for name in base:
            values = base[name].numpy()
            layer = f"base_model.model.{name.removesuffix('.weight')}"
            if f"{layer}.lora_A.weight" in factors:
                b, a = factors[f"{layer}.lora_B.weight"], factors[f"{layer}.lora_A.weight"]
                values = values + b @ a * np.float32(1.5)
            assert merged[name].numpy("bf16").tobytes() == values.astype(BF16).tobytes()


def test_merge_lora_refuses(folder: Path) -> None:
    adapter = folder / "dora"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text('{"use_dora": true}')
    done = run("merge_lora", FP8_DIRECTORY, "dora", "not-made", folder=folder, returncode=1)
    assert b"use_dora is set" in done.stderr
    assert not (folder / "not-made").exists()


def test_gguf_weights(folder: Path) -> None:
    lines = run("gguf_weights", GGUF, folder=folder).stdout.decode().splitlines()
    assert lines[0] == "llama"
    assert len(lines) == 22
    assert {line.split()[1] for line in lines[1:]} == {"Q4_K", "Q6_K", "F32"}


def test_scan_uploads(folder: Path) -> None:
    done = run("scan_uploads", UPLOADS, folder=folder, returncode=1)
    told = dict(line.split(": ", 1) for line in done.stdout.decode().splitlines())
    assert told["attack.pkl"] == "dangerous"
    assert told["weights.pth"] == told["model.safetensors"] == "accepted"
    assert told["cut.safetensors"] != "accepted"


def test_dequantize_arrays(folder: Path) -> None:
    printed = run("dequantize_arrays", folder=folder).stdout.decode()
    assert "FP8  bfloat16 (256, 384)" in printed
    assert "equal to d * q: True" in printed


def test_stream_to_stdout(folder: Path) -> None:
    done = run("stream", "model-fp8.safetensors", folder=folder)
    assert done.stdout == (folder / "model-bf16.safetensors").read_bytes()


def test_stream_to_a_socket(folder: Path) -> None:
    received = bytearray()

    def serve(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            while piece := connection.recv(1 << 16):
                received.extend(piece)

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        port = server.getsockname()[1]
        run("stream", "model-fp8.safetensors", "127.0.0.1", port, folder=folder)
        thread.join()
    assert received == (folder / "model-bf16.safetensors").read_bytes()
