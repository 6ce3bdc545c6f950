"""An S3 server by moto, and a proxy before it that counts requests and breaks one of them."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import obstore
import urllib3
from obstore.store import from_url

FAULTS = ("busy", "cut", "lost", "down")
# A request is refused once; its connection is closed before it is done, or behind; or it and all
# after it are refused, but for those that give uploads up.


class Proxy(ThreadingHTTPServer):
    """Forwards to a server; the `at`-th request since `reset` meets a fault."""

    daemon_threads = True

    def __init__(self, host: str, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind = (host, port)
        self.lock = threading.Lock()
        self.translate: Callable[[Any], None] = lambda _: None  # what another API's headers are
        self.reset()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def reset(self, fault: str = "", at: int = 0) -> None:
        """Count from here on."""
        self.fault, self.at = fault, at
        self.asked: list[str] = []

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients go away."""

    def fault_of(self, line: str) -> str:
        """Count a request; return what befalls it."""
        with self.lock:
            self.asked.append(line)
            n = len(self.asked)
        is_met = n == self.at or (n > self.at and self.fault == "down" and line[:6] != "DELETE")
        return self.fault if self.at and is_met else ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):  # whatever the method
            return self._serve
        raise AttributeError(name)

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.translate(self.headers)
        fault = self.server.fault_of(f"{self.command} {self.path}")
        if fault in ("busy", "down"):
            return self._answer(503 if fault == "busy" else 500, {}, b"")
        if fault != "cut":
            ahead = HTTPConnection(*self.server.behind)
            ahead.request(self.command, self.path, body, dict(self.headers))
            found = ahead.getresponse()
            raw = found.read()
            if fault != "lost":
                return self._answer(found.status, dict(found.getheaders()), raw)
        self.close_connection = True
        return None

    def _answer(self, status: int, headers: dict[str, str], raw: bytes) -> None:
        self.send_response_only(status)
        own = {"connection", "transfer-encoding", "content-length"}
        for name, value in headers.items():
            if name.lower() not in own:
                self.send_header(name, value)
        length = headers.get("Content-Length") if self.command == "HEAD" else None
        if status != 204:
            self.send_header("Content-Length", length or str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


class Bucket:
    """A bucket, seen by the side of the code that is tried."""

    def __init__(self, endpoint: str, proxy: Proxy, name: str) -> None:
        self.url, self.proxy, self._endpoint, self.name = f"s3://{name}", proxy, endpoint, name
        urllib3.request("PUT", f"{endpoint}/{name}")
        self.store = from_url(
            self.url,
            endpoint=endpoint,
            client_options={"allow_http": True},
            access_key_id="a",
            secret_access_key="b",
            region="us-east-1",
        )

    def tree(self, prefix: str = "") -> dict[str, bytes]:
        """Return the objects below a prefix."""
        found = [one["path"] for some in obstore.list(self.store) for one in some]
        return {
            path.removeprefix(prefix): bytes(obstore.get(self.store, path).bytes())
            for path in found
            if path.startswith(prefix)
        }

    def unfinished(self) -> list[tuple[str, str]]:
        """Return the keys and ids of uploads that are neither finished nor given up."""
        raw = urllib3.request("GET", f"{self._endpoint}/{self.name}?uploads").data.decode()
        return re.findall(r"<Key>(.*?)</Key>\s*<UploadId>(.*?)</UploadId>", raw)

    def clear(self) -> None:
        """Remove all objects, and give all uploads up."""
        obstore.delete(self.store, list(self.tree()))
        for key, number in self.unfinished():
            urllib3.request("DELETE", f"{self._endpoint}/{self.name}/{key}?uploadId={number}")


@contextmanager
def s3_server() -> Iterator[tuple[str, Proxy]]:
    """Run a server; yield its address, and a proxy before it."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)  # it tells of each request
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    proxy = Proxy(host, port)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    yield f"http://{host}:{port}", proxy
    proxy.shutdown()
    proxy.server_close()
    server.stop()
