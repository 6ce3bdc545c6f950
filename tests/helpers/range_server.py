"""A web server of ranges, and a hub: with latency, faults, and a log of all requests."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "c" * 40
_LARGE = (".safetensors", ".gguf", ".bin", ".pth", ".npz")  # what a hub keeps elsewhere


class Seen(NamedTuple):
    """One request."""

    path: str
    host: str
    range: str | None
    secret: str | None
    if_match: str | None
    status: int
    n_bytes: int


Fault = Callable[["Handler", int], str | None]  # of the n-th request of a file's bytes


class RangeServer(ThreadingHTTPServer):
    """Serves the files below a folder, and repositories `ORG/NAME` below another."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, root: Path, hub: Path | None = None, latency: float = 0.0) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.root, self.hub, self.latency = root, hub, latency
        self.fault: Fault | None = None
        self.signed_for = 300.0
        self.etags: dict[str, str | None] = {}
        self.owner: str | None = None
        self.linked = ""
        self.more_files: list[str] = []  # that the hub lists, and has not
        self.log: list[Seen] = []
        self.n_asked = 0
        self.live = self.peak = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def n_bytes(self) -> int:
        return sum(seen.n_bytes for seen in self.log)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that go away."""


@contextlib.contextmanager
def serving(
    root: Path, hub: Path | None = None, latency: float = 0.0, owner: str | None = None
) -> Iterator[RangeServer]:
    """Run a server in a thread; an owner's repositories lie in the hub's folder itself."""
    server = RangeServer(root, hub, latency)
    server.owner = owner
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: RangeServer

    def log_message(self, format: str, *args: Any) -> None:
        """Be quiet."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        server = self.server
        with server.lock:
            server.live += 1
            server.peak = max(server.peak, server.live)
        time.sleep(server.latency)
        try:
            self._answer()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            with server.lock:
                server.live -= 1

    def _answer(self) -> None:
        url = urlsplit(self.path)
        path = unquote(url.path)
        parts = path.strip("/").split("/")
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        if parts[:2] == ["api", "models"]:
            return self._list("/".join(parts[2:4]), parts[5] if len(parts) > 5 else "main")
        if parts[0] == "hop":  # /hop/N/file: N redirects; /hop/N/0/file: to another host
            left = int(parts[1])
            rest = "/".join(parts[2:])
            where = f"/hop/{left - 1}/{rest}" if left > 1 else f"/{rest}"
            return self._reply(302, Location=where)
        if parts[0] == "elsewhere":
            host = f"http://localhost:{self.server.server_address[1]}"
            signed = f"?until={time.time() + self.server.signed_for}"
            return self._reply(302, Location=f"{host}/signed/{'/'.join(parts[1:])}{signed}")
        if parts[0] == "signed":
            if float(query["until"]) < time.time():
                return self._reply(403)
            parts = parts[1:]
        if len(parts) > 4 and parts[2] == "resolve" and self.server.hub is not None:
            return self._resolve("/".join(parts[:2]), parts[3], "/".join(parts[4:]))
        if parts[0] == "lfs" and self.server.hub is not None:
            return self._file(self._repository("/".join(parts[1:3])) / "/".join(parts[3:]))
        return self._file(self.server.root / "/".join(parts))

    # --- the hub --------------------------------------------------------------------------------

    def _repository(self, name: str) -> Path:
        assert self.server.hub is not None
        owner, _, model = name.partition("/")
        return self.server.hub / (model if owner == self.server.owner else name)

    def _denied(self, repository: str, revision: str = "main") -> bool:
        gated = (self._repository(repository) / ".gated").exists()
        if gated and self.headers.get("Authorization") != "Bearer hf_right":
            self._reply(403, X_Error_Code="GatedRepo", X_Error_Message="gated")
        elif not self._repository(repository).is_dir():
            self._reply(401, X_Error_Code="RepoNotFound", X_Error_Message="Repository not found")
        elif revision not in ("main", COMMIT):
            self._reply(404, X_Error_Code="RevisionNotFound", X_Error_Message="Invalid rev id")
        else:
            return False
        return True

    def _list(self, repository: str, revision: str) -> None:
        if self._denied(repository, revision):
            return
        folder = self._repository(repository)
        files = [p for p in sorted(folder.rglob("*")) if p.is_file() and p.name != ".gated"]
        listed = [
            {"rfilename": p.relative_to(folder).as_posix(), "size": p.stat().st_size} for p in files
        ]
        listed += [{"rfilename": name, "size": 10} for name in self.server.more_files]
        told = {"id": repository, "sha": COMMIT, "siblings": listed}
        self._reply(200, json.dumps(told).encode(), Content_Type="application/json")

    def _resolve(self, repository: str, revision: str, name: str) -> None:
        if self._denied(repository, revision):
            return None
        path = self._repository(repository) / name
        if not path.is_file():
            return self._reply(404, X_Error_Code="EntryNotFound", X_Error_Message="not found")
        if not name.endswith(_LARGE):
            return self._file(path, X_Repo_Commit=COMMIT)
        size = path.stat().st_size
        signed = f"until={time.time() + self.server.signed_for}"
        where = f"http://localhost:{self.server.server_address[1]}/signed/lfs"
        return self._reply(
            302,
            Location=f"{where}/{repository}/{name}?{signed}",
            X_Repo_Commit=COMMIT,
            X_Linked_Size=size,
            X_Linked_ETag=f'"{sha256((name + self.server.linked).encode()).hexdigest()}"',
        )

    # --- ranges ---------------------------------------------------------------------------------

    def _file(self, path: Path, **headers: Any) -> None:
        if not path.is_file():
            return self._reply(404)
        stat = path.stat()
        size = stat.st_size
        etag = self.server.etags.get(path.name, f'"{stat.st_mtime_ns:x}-{size:x}"')
        headers["Last_Modified"] = self.date_time_string(stat.st_mtime)
        if etag:
            headers["ETag"] = etag
        fault = None
        with self.server.lock:
            n = self.server.n_asked
            self.server.n_asked += 1
        if self.server.fault is not None:
            fault = self.server.fault(self, n)
        if fault is not None and fault.isdigit() and fault != "200":
            return self._reply(int(fault), b"no", Retry_After="0")
        if self.headers.get("If-Match", etag) != etag:
            return self._reply(412)
        unmodified = self.headers.get("If-Unmodified-Since")
        if unmodified is not None and unmodified != headers["Last_Modified"]:
            return self._reply(412)
        wanted = self.headers.get("Range")
        start, stop = 0, size
        if wanted and fault != "200":
            first, last = wanted.removeprefix("bytes=").split("-")
            start, stop = int(first), min(size, int(last) + 1)
            if start >= size:
                return self._reply(416, Content_Range=f"bytes */{size}")
            headers["Content_Range"] = f"bytes {start}-{stop - 1}/{size}"
        if fault == "shifted":
            headers["Content_Range"] = f"bytes {start + 1}-{stop - 1}/{size}"
        cut = (stop - start) // 2 if fault == "cut" else None
        with path.open("rb") as file:
            file.seek(start)
            body = file.read(stop - start)
        return self._reply(206 if wanted and fault != "200" else 200, body, cut, **headers)

    def _reply(
        self, status: int, body: bytes = b"", cut: int | None = None, /, **headers: Any
    ) -> None:
        heard = self.headers
        sent = body[:cut]
        seen = Seen(
            self.path,
            (heard.get("Host") or "").partition(":")[0],
            heard.get("Range"),
            heard.get("Authorization"),
            heard.get("If-Match"),
            status,
            len(sent),
        )
        with self.server.lock:
            self.server.log.append(seen)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(sent)
        if cut is not None:
            self.wfile.flush()
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(2)
