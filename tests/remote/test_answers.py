"""Answers that no honest server gives: an error in one line, or what is right."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

import anamnesis as an
from anamnesis.base.errors import AnamnesisError
from anamnesis.sources import retries

LONG = "9" * 5000
PARTIAL = "HTTP/1.1 206 Partial Content\r\n"
RANGE = "Content-Range: bytes 0-7/8\r\n"
ANSWERS = {
    "nothing": "",
    "no HTTP": "hello\r\n\r\n",
    "a status that is no number": "HTTP/1.1 2O6 OK\r\n\r\n",
    "a long size": f"{PARTIAL}Content-Range: bytes 0-7/{LONG}\r\n\r\n",
    "a long length": f"HTTP/1.1 200 OK\r\nContent-Length: {LONG}\r\n\r\n",
    "a negative length": f"{PARTIAL}{RANGE}Content-Length: -1\r\n\r\n12345678",
    "two lengths": f"{PARTIAL}{RANGE}Content-Length: 8\r\nContent-Length: 9\r\n\r\n12345678",
    "an unknown size": f"{PARTIAL}Content-Range: bytes 0-7/*\r\n\r\n12345678",
    "another unit": f"{PARTIAL}Content-Range: lines 0-7/8\r\n\r\n12345678",
    "several ranges": f"{PARTIAL}Content-Type: multipart/byteranges; boundary=x\r\n\r\n--x--",
    "no range": f"{PARTIAL}Content-Length: 8\r\n\r\n12345678",
    "chunks that are none": f"{PARTIAL}{RANGE}Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "more than was asked": f'{PARTIAL}{RANGE}ETag: "a"\r\n\r\n' + "x" * 300_000,
    "a wait without end": f"HTTP/1.1 503 Busy\r\nRetry-After: -{LONG}\r\nContent-Length: 0\r\n\r\n",
    "another size when it is empty": "HTTP/1.1 416 No\r\nContent-Range: bytes */-1\r\n\r\n",
    "a redirect to nowhere": "HTTP/1.1 302 Found\r\nLocation: http://[\r\n\r\n",
    "a redirect without a host": "HTTP/1.1 302 Found\r\nLocation: http:///x\r\n\r\n",
    "a redirect to a port": "HTTP/1.1 302 Found\r\nLocation: http://h:99999999/\r\n\r\n",
    "a redirect to a label": f"HTTP/1.1 302 Found\r\nLocation: http://{'a' * 70}.b/\r\n\r\n",
    "a redirect to data": "HTTP/1.1 302 Found\r\nLocation: data:text/plain,x\r\n\r\n",
    "a redirect without a place": "HTTP/1.1 302 Found\r\n\r\n",
    "a date that is none": f"{PARTIAL}{RANGE}Last-Modified: \u00b2 Foo {LONG}\r\n\r\n12345678",
    "a long line": f"{PARTIAL}X: {'x' * 70_000}\r\n\r\n",
    "many headers": PARTIAL + "X: x\r\n" * 500 + "\r\n",
}


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Say one thing to whoever asks."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    try:
                        connection.recv(65536)
                        connection.sendall(answer)
                    except OSError:
                        pass

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/m.safetensors"


@pytest.mark.parametrize("name", ANSWERS)
def test_an_error_in_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "_WAITS", (0.0, 0.0))
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    parse: Callable[[str], object] = an.parse
    with answering(ANSWERS[name].encode("latin-1")) as url:
        with pytest.raises((AnamnesisError, OSError)) as caught:
            parse(url)
        assert "\n" not in str(caught.value)
