"""Every script in examples/ runs, and does what it says."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from page_inputs import FP8_DIRECTORY, GGUF, UPLOADS, make_inputs

EXAMPLES = Path(__file__).parents[1] / "examples"
TRIED = {"convert_directory", "gguf_weights", "scan_uploads", "dequantize_arrays", "stream"}


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


def test_convert_directory(folder: Path) -> None:
    done = run("convert_directory", FP8_DIRECTORY, "out", folder=folder)
    assert done.stdout.startswith(b"in 18 tensors, out 11, dropped 0")
    assert (folder / "out" / "config.json").is_file()
    assert run("convert_directory", FP8_DIRECTORY, "out", folder=folder).returncode == 0


def test_gguf_weights(folder: Path) -> None:
    lines = run("gguf_weights", GGUF, folder=folder).stdout.decode().splitlines()
    assert lines[0] == "llama"
    assert len(lines) == 6
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
