"""Files of web servers, read in ranges: the same as on disk, or one clean error."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
import zlib
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from anamnesis.base.errors import OutputError, ParseError, UnsupportedError
from anamnesis.sources.http import _origin
from anamnesis.sources.open import open_source
from anamnesis.sources.urls import file_name, shown_url, url_beside
from helpers.range_server import Handler, RangeServer
from helpers.remote_models import N_TENSORS, directory, failure, fp8, model

CONTAINERS = ("safetensors", "gguf", "npz", "pth")
# How many requests, and how many of them one after the other, until a header is parsed.
REQUESTS = {"safetensors": 1, "gguf": 1, "npz": N_TENSORS + 2, "pth": N_TENSORS + 4}


def web(server: RangeServer) -> Path:
    return server.root


@pytest.mark.parametrize("container", CONTAINERS)
def test_each_container_is_read_as_from_disk(server: RangeServer, container: str) -> None:
    path = model(web(server), f"m.{container}")
    with an.parse(path) as there, an.parse(f"{server.url}/{path.name}") as here:
        assert replace(here.inspect(), file_names=()) == replace(there.inspect(), file_names=())
        assert len(server.log) <= REQUESTS[container]
        for name in there:
            assert np.array_equal(here[name].numpy(), there[name].numpy())


def test_archives_take_three_round_trips(server: RangeServer) -> None:
    """One of the beginning, one of the end, and all headers of members together."""
    model(web(server), "m.npz")
    server.latency = 0.02
    an.parse(f"{server.url}/m.npz").close()
    assert server.peak > 8
    assert server.log[0].range == "bytes=0-131071"


def test_a_long_header_takes_few_requests(server: RangeServer) -> None:
    words = [f"token{i:020d}" for i in range(100_000)]
    an.save(
        {"w": np.zeros(8, np.float32)}, web(server) / "m.gguf", metadata={"general.words": words}
    )
    size = (web(server) / "m.gguf").stat().st_size
    with an.parse(f"{server.url}/m.gguf") as found:
        n_header = len(server.log)
        assert found.metadata["general.words"] == words
    assert size > 3e6
    assert n_header <= 6
    assert len(server.log) == n_header


def test_a_conversion_reads_each_byte_once(server: RangeServer, tmp_path: Path) -> None:
    path = fp8(web(server))
    an.remember(path, tmp_path / "near.safetensors")
    with an.parse(f"{server.url}/{path.name}") as found:
        server.log.clear()
        found.remember(tmp_path / "far.safetensors")
    far, near = (tmp_path / f"{name}.safetensors" for name in ("far", "near"))
    assert far.read_bytes() == near.read_bytes()
    assert server.n_bytes == sum(tensor.n_bytes for tensor in an.parse(path).stored.values())


FAULTS: dict[str, str | None] = {  # what a server does at one request; the error, if one follows
    "503": None,
    "429": None,
    "cut": None,
    "404": "no such file",
    "403": "access is refused",
    "500": None,
    "418": "HTTP 418",
    "shifted": "another range",
    "200": "sends the whole file",
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("each", [False, pytest.param(True, marks=pytest.mark.weekly)])
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_at_each_request(
    server: RangeServer, tmp_path: Path, fault: str, *, each: bool
) -> None:
    """The same bytes, or one clean error, and nothing left."""
    path = fp8(web(server))
    want = tmp_path / "near.safetensors"
    an.remember(path, want)
    an.remember(f"{server.url}/{path.name}", tmp_path / "far.safetensors")
    (tmp_path / "far.safetensors").unlink()
    n = server.n_asked
    for at in range(n) if each else (0, 1, n // 2, n - 1):
        error = failure(lambda at=at: fails_at(server, fault, at, path.name, tmp_path))  # type: ignore[misc]
        expected = FAULTS[fault]
        if expected is None:
            assert error is None
            assert (tmp_path / "far.safetensors").read_bytes() == want.read_bytes()
            (tmp_path / "far.safetensors").unlink()
        else:
            assert expected in str(error)
        assert not (tmp_path / "far.safetensors").exists()


def fails_at(server: RangeServer, fault: str, at: int, name: str, out: Path) -> None:
    server.n_asked = 0
    server.fault = lambda _, n: fault if n == at else None
    an.remember(f"{server.url}/{name}", out / "far.safetensors")


@pytest.mark.parametrize("fault", ["503", "cut"])
def test_a_fault_that_stays_is_an_error(server: RangeServer, fault: str) -> None:
    model(web(server), "m.safetensors")
    server.fault = lambda *_: fault
    with pytest.raises(ConnectionError, match="gave up after 6 tries"):
        an.parse(f"{server.url}/m.safetensors")
    assert len(server.log) == 6


def test_an_object_that_is_replaced(server: RangeServer, tmp_path: Path) -> None:
    path = model(web(server), "m.safetensors")

    def replace(handler: Handler, n: int) -> None:
        if n == 5:
            handler.server.etags[path.name] = '"other"'

    for etag in ('"one"', None, 'W/"weak"'):
        server.etags[path.name], server.n_asked = etag, 0
        os.utime(path)
        server.fault = replace if etag == '"one"' else None
        with an.parse(f"{server.url}/m.safetensors") as found:
            if etag != '"one"':
                os.utime(path, (1, 1))
            with pytest.raises(ParseError, match="was replaced while it was read"):
                found.remember(tmp_path / "out.safetensors")
        assert not (tmp_path / "out.safetensors").exists()


def test_what_cannot_be_known_again_is_refused(
    server: RangeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless one answer has all of it."""
    monkeypatch.setattr(Handler, "send_header", _without("ETag", "Last-Modified"))
    model(web(server), "small.safetensors", 1, 128)
    model(web(server), "m.safetensors")
    assert len(an.parse(f"{server.url}/small.safetensors")) == 1
    with pytest.raises(ParseError, match="neither a strong ETag nor Last-Modified"):
        an.parse(f"{server.url}/m.safetensors")


def _without(*names: str) -> Callable[..., None]:
    send = Handler.send_header

    def send_header(self: Handler, name: str, value: str) -> None:
        if name not in names:
            send(self, name, value)

    return send_header


def test_a_small_file_whole(server: RangeServer) -> None:
    """As servers without ranges send it."""
    path = model(web(server), "small.safetensors", 1, 128)
    server.fault = lambda *_: "200"
    with an.parse(f"{server.url}/small.safetensors") as found, an.parse(path) as there:
        assert np.array_equal(
            found["model.layers.0.mlp.up_proj.weight"].numpy(),
            there["model.layers.0.mlp.up_proj.weight"].numpy(),
        )
    assert len(server.log) == 1


def test_an_empty_file(server: RangeServer) -> None:
    (web(server) / "empty.safetensors").touch()
    error = failure(lambda: an.parse(web(server) / "empty.safetensors"))
    far = failure(lambda: an.parse(f"{server.url}/empty.safetensors"))
    assert type(far) is type(error)


def test_redirects(server: RangeServer) -> None:
    model(web(server), "m.safetensors")
    an.parse(f"{server.url}/hop/5/m.safetensors").close()
    with pytest.raises(ParseError, match="redirects more than 5 times"):
        an.parse(f"{server.url}/hop/6/m.safetensors")


def test_a_secret_goes_to_its_host_only(server: RangeServer, tmp_path: Path) -> None:
    """And an address that another host signs is asked for once, and again when it expires."""
    model(web(server), "m.safetensors")
    server.signed_for = 0.2
    secret = server.url.replace("//", "//user:pass@")
    with an.parse(f"{secret}/elsewhere/m.safetensors") as found:
        assert "pass" not in repr(found)
        time.sleep(0.25)
        found.remember(tmp_path / "far.safetensors", threads=8)
    an.remember(web(server) / "m.safetensors", tmp_path / "near.safetensors")
    far, near = (tmp_path / f"{name}.safetensors" for name in ("far", "near"))
    assert far.read_bytes() == near.read_bytes()
    assert {seen.host for seen in server.log if seen.secret} == {"127.0.0.1"}
    assert {seen.host for seen in server.log} == {"127.0.0.1", "localhost"}
    refused = sum(seen.status == 403 for seen in server.log)
    resolved = sum(seen.status == 302 for seen in server.log) - 1
    assert refused >= resolved >= 1


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("limit", [100, 2000])
def test_limits_hold(server: RangeServer, container: str, limit: int) -> None:
    path = model(web(server), f"m.{container}")
    limits = an.ParseLimits(max_single_alloc=limit)
    near = failure(lambda: an.parse(path, limits=limits))
    far = failure(lambda: an.parse(f"{server.url}/{path.name}", limits=limits))
    assert type(near) is type(far)


NO_ADDRESSES = ("http:///x", "http://[::1", "http://x:99999999/m", "https://user@/m")


@pytest.mark.parametrize("url", NO_ADDRESSES)
def test_no_address(url: str) -> None:
    with pytest.raises(ParseError, match="not the address of a web server"):
        an.parse(url)


@pytest.mark.parametrize(
    ("user", "secret"),
    [("a", "a:"), ("a:b%3Ac%40", "a:b:c@"), ("a:%E2%82%AC", "a:\u20ac"), ("a@b:c", "a@b:c")],
)
def test_the_user_of_an_address(server: RangeServer, user: str, secret: str) -> None:
    model(web(server), "m.safetensors")
    an.parse(f"{server.url.replace('//', f'//{user}@')}/m.safetensors").close()
    word, _, coded = (server.log[0].secret or "").partition(" ")
    assert (word, b64decode(coded).decode()) == ("Basic", secret)


def test_names_show_no_secret() -> None:
    shown = shown_url("https://me:secret@host:1/a/b.gguf?X-Amz-Signature=secret#x")
    assert shown == "https://host:1/a/b.gguf"
    assert url_beside("https://h/a/b.gguf?k=1", "c d.json") == "https://h/a/c%20d.json?k=1"
    assert url_beside("s3://b/a/m.gguf", "c d.json") == "s3://b/a/c d.json"
    assert _origin("https://h/") == _origin("https://h:443/x") != _origin("http://h:443/")


@pytest.mark.parametrize("proxy", ["http_proxy", "all_proxy"])
def test_a_redirect_into_files_is_refused(
    server: RangeServer, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv(proxy, server.url)

    def answer(self: Handler) -> None:
        self._reply(302, Location="file:///etc/passwd")

    monkeypatch.setattr(Handler, "_answer", answer)
    with pytest.raises(ParseError, match="not the address of a web server"):
        an.parse(f"{server.url}/m.safetensors")


def test_proxies_of_the_environment(
    server: RangeServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model(web(server), "m.safetensors")
    monkeypatch.setenv("http_proxy", server.url)
    an.parse("http://models.invalid/m.safetensors").close()
    assert server.log[0].host == "models.invalid"


def test_a_lone_part_is_found_beside_the_other(server: RangeServer, tmp_path: Path) -> None:
    plain = model(tmp_path, "plain.safetensors")
    an.convert(plain, web(server) / "m.gguf", "gguf-f32", split_max_size=200_000)
    parts = sorted(p.name for p in web(server).iterdir())
    assert len(parts) > 3
    whole: Any = an.parse(f"{server.url}/{parts[1]}")
    assert len(whole) == N_TENSORS


def test_a_run_that_was_cut_off_is_resumed(server: RangeServer, tmp_path: Path) -> None:
    """With what is there already; but not of an object that was replaced meanwhile."""
    path = fp8(web(server))
    out = tmp_path / "far.safetensors"
    an.remember(path, tmp_path / "near.safetensors")
    url = f"{server.url}/{path.name}"
    server.fault = lambda _, n: "503" if n > 45 else None
    with pytest.raises(ConnectionError):
        an.remember(url, out)
    server.fault, server.etags[path.name] = None, '"other"'
    with pytest.raises(OutputError, match="belongs to a different source"):
        an.remember(url, out, resume=True)
    del server.etags[path.name]
    server.log.clear()
    an.remember(url, out, resume=True)
    assert out.read_bytes() == (tmp_path / "near.safetensors").read_bytes()
    assert server.n_bytes < 0.9 * path.stat().st_size


def test_a_model_is_pickled_by_its_address(server: RangeServer) -> None:
    path = model(web(server), "m.safetensors")
    with an.parse(f"{server.url}/{path.name}") as found:
        again = pickle.loads(pickle.dumps(found))
        assert list(again) == list(found)


def test_scanning(server: RangeServer) -> None:
    """Pickles are read in ranges: not the tensors."""
    path = model(web(server), "m.pth")
    assert an.scan(f"{server.url}/{path.name}").verdict == "safe"
    assert server.n_bytes < path.stat().st_size / 2
    (web(server) / "bad.pkl").write_bytes(b"cos\nsystem\n(S'id'\ntR.")
    assert an.scan(f"{server.url}/bad.pkl").verdict == "dangerous"


def test_an_index_stands_for_its_folder(server: RangeServer, tmp_path: Path) -> None:
    directory(web(server) / "m")
    an.remember(web(server) / "m", tmp_path / "near")
    an.remember(f"{server.url}/m/model.safetensors.index.json", tmp_path / "far")
    for name in ("README.md", "tokenizer.json", "config.json"):
        assert (tmp_path / "far" / name).read_bytes() == (tmp_path / "near" / name).read_bytes()
    shards = sorted(path.name for path in (tmp_path / "near").glob("*.safetensors"))
    assert len(shards) > 1
    assert shards == sorted(path.name for path in (tmp_path / "far").glob("*.safetensors"))
    with pytest.raises(ParseError, match="does not list folders"):
        an.parse(f"{server.url}/m/")


def test_configs_beside_one_file(server: RangeServer) -> None:
    directory(web(server) / "m")
    name = min(path.name for path in (web(server) / "m").glob("*.safetensors"))
    near, far = (an.inspect(f"{root}/m/{name}") for root in (web(server), server.url))
    assert near.schemes == far.schemes
    config = web(server) / "m" / "config.json"
    config.write_text("{")
    with pytest.raises(ParseError, match=rf"^{server.url}/m/config.json: not valid JSON"):
        an.inspect(f"{server.url}/m/{name}")


@pytest.mark.parametrize("extra", ["remote", "hub"])
def test_without_the_extra(monkeypatch: pytest.MonkeyPatch, extra: str) -> None:
    lacks = {"remote": ("urllib3", "obstore"), "hub": ("huggingface_hub",)}[extra]
    urls = {"remote": ("https://h/m.gguf", "s3://b/m.gguf"), "hub": ("hf://o/m", "hf://o/m/a.pth")}
    for name in [n for n in sys.modules if n.partition(".")[0] in lacks]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in lacks:
        monkeypatch.setitem(sys.modules, name, None)
    for url in urls[extra]:
        with pytest.raises(UnsupportedError, match=rf"pip install 'anamnesis-tensors\[{extra}\]'"):
            an.parse(url)


def test_addresses_cost_nothing_at_the_start() -> None:
    code = "import anamnesis.cli.app, anamnesis.opening, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    names = {"urllib3", "huggingface_hub", "obstore", "urllib.parse", "anamnesis.sources.remote"}
    assert names.isdisjoint(loaded.decode().split())


def test_a_compressed_answer_is_refused(
    server: RangeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(web(server), "m.safetensors")
    end = Handler.end_headers

    def end_headers(self: Handler) -> None:
        self.send_header("Content-Encoding", "gzip")
        end(self)

    monkeypatch.setattr(Handler, "end_headers", end_headers)
    with pytest.raises(ParseError, match="the server compresses it"):
        an.parse(f"{server.url}/m.safetensors")


def test_rows_are_read_with_what_lies_between(server: RangeServer) -> None:
    raw = np.random.default_rng(0).bytes(1 << 20)
    (web(server) / "raw").write_bytes(raw)
    source = open_source(f"{server.url}/raw")
    source.settle(0)
    view = memoryview(bytearray(40 * 100))
    source.read_rows_into(5, 10_000, 40, view)
    assert bytes(view) == b"".join(raw[5 + i * 10_000 :][:40] for i in range(100))
    assert len(server.log) == 2
    assert source.read_summed(7, view) == zlib.crc32(raw[7 : 7 + len(view)])


@pytest.mark.parametrize("last", ["..%2F..%2Fevil.gguf", "..%5Cevil.gguf", "a/..%2Fevil.gguf"])
def test_a_name_is_one_part(last: str) -> None:
    assert file_name(f"https://h/a/{last}?x=1/2") == "evil.gguf"
