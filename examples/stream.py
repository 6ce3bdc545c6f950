"""Convert a model into a stream that cannot seek: standard output, a socket, an upload.

python examples/stream.py model-fp8.safetensors > model-bf16.safetensors
python examples/stream.py model-fp8.safetensors HOST PORT
"""

from __future__ import annotations

import socket
import sys

import anamnesis as an


def main(path: str, host: str | None = None, port: str | None = None) -> None:
    """Write one safetensors file to the socket, or to standard output."""
    with an.parse(path) as model:
        if host is None or port is None:
            report = model.remember(sys.stdout.buffer)
        else:
            with socket.create_connection((host, int(port))) as connection:
                report = model.remember(connection.makefile("wb", buffering=0))
    print(report, file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:4])
