"""Repositories of a hub: their listing, files and refusals."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import constants

import anamnesis as an
from anamnesis.base.errors import AnamnesisError, ParseError
from anamnesis.checkpoint.remote import files_at
from anamnesis.sources.urls import HubPlace
from helpers.range_server import COMMIT, Handler, RangeServer
from helpers.remote_models import directory, model, same_files


@pytest.fixture
def hub(server: RangeServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RangeServer:
    assert server.hub is not None
    directory(server.hub / "org" / "m")
    monkeypatch.setattr(constants, "ENDPOINT", server.url)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    template = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    return server


def test_a_repository_is_converted_as_on_disk(hub: RangeServer, tmp_path: Path) -> None:
    assert hub.hub is not None
    an.remember(hub.hub / "org" / "m", tmp_path / "near")
    an.remember("hf://org/m", tmp_path / "far")
    assert same_files(tmp_path / "near", tmp_path / "far")
    assert {seen.host for seen in hub.log if seen.secret} == {"127.0.0.1"}
    resolved = [seen for seen in hub.log if seen.status == 302]
    assert len(resolved) == len({seen.path for seen in resolved})


def test_inspecting_fetches_little(hub: RangeServer) -> None:
    assert hub.hub is not None
    with an.parse("hf://org/m") as here, an.parse(hub.hub / "org" / "m") as there:
        assert str(here.inspect()) == str(there.inspect())
    fetched = [seen.path.rpartition("/")[2] for seen in hub.log if seen.status == 206]
    assert "tokenizer.json" not in fetched
    assert "config.json" in fetched


def test_torch_shards(hub: RangeServer, tmp_path: Path) -> None:
    assert hub.hub is not None
    root = hub.hub / "org" / "bin"
    root.mkdir()
    for i in (1, 2):
        names = {f"layers.{i}.{j}.weight": np.full((64, 300), j, np.float32) for j in range(20)}
        an.save(names, root / "m.pth")
        (root / "m.pth").rename(root / f"pytorch_model-{i:05d}-of-00002.bin")
    (root / "config.json").write_text("{}")
    an.remember(root, tmp_path / "near")
    an.remember("hf://org/bin", tmp_path / "far")
    assert same_files(tmp_path / "near", tmp_path / "far")


def test_one_file(hub: RangeServer) -> None:
    assert hub.hub is not None
    name = min(p.name for p in (hub.hub / "org" / "m").glob("*.safetensors"))
    with an.parse(f"hf://org/m@{COMMIT}/{name}") as found:
        assert found.inspect().schemes == an.inspect(hub.hub / "org" / "m" / name).schemes


def test_an_inner_folder(hub: RangeServer) -> None:
    assert hub.hub is not None
    directory(hub.hub / "org" / "m" / "unet")
    assert len(an.parse("hf://org/m/unet")) == len(an.parse(hub.hub / "org" / "m" / "unet"))


def test_what_is_in_the_cache_is_read_there(hub: RangeServer, tmp_path: Path) -> None:
    snapshot = tmp_path / "cache" / "models--org--m" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    assert hub.hub is not None
    shards = sorted((hub.hub / "org" / "m").glob("*.safetensors"))
    for path in shards:
        (snapshot / path.name).write_bytes(path.read_bytes())
    with an.parse("hf://org/m") as found:
        assert len(found) == 24
    assert not [seen for seen in hub.log if seen.path.endswith(".safetensors")]


def test_offline(hub: RangeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "is_offline_mode", lambda: True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    refs = tmp_path / "cache" / "models--org--m" / "refs"
    refs.mkdir(parents=True)
    (refs / "main").write_text(COMMIT)
    snapshot = refs.parent / "snapshots" / COMMIT
    directory(snapshot)
    assert len(an.parse("hf://org/m")) == 24
    name = min(p.name for p in snapshot.glob("*.safetensors"))
    assert len(an.parse(f"hf://org/m/{name}")) > 0
    for place in ("hf://org/other", "hf://org/m/none.safetensors"):
        with pytest.raises(FileNotFoundError, match="HF_HUB_OFFLINE is set"):
            an.parse(place)
    assert hub.log == []


REFUSED = {
    "hf://org/none": "no such repository, or a private one",
    "hf://org/none/m.gguf": "no such repository, or a private one",
    "hf://org/m@none": "no such revision",
    "hf://org/m/none.gguf": "no such file",
    "hf://org/m/none": "no such file or folder",
    "hf://org/gated": "accept its terms on the hub",
    "hf://org/gated/m.safetensors": "accept its terms on the hub",
    "hf://org": "is not hf://ORG/MODEL",
    "hf://": "is not hf://ORG/MODEL",
}


@pytest.mark.parametrize("url", REFUSED)
def test_refusals(hub: RangeServer, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hub.hub is not None
    (hub.hub / "org" / "gated").mkdir()
    (hub.hub / "org" / "gated" / ".gated").touch()
    model(hub.hub / "org" / "gated", "m.safetensors")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises((OSError, ParseError), match=REFUSED[url]) as caught:
        an.parse(url)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("told", [b"", b"[]", b"{}", b"[" * 100_000, b'{"siblings": 1, "sha": 2}'])
def test_a_listing_that_is_none(
    hub: RangeServer, told: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "_list", lambda self, *_: self._reply(200, told))
    with pytest.raises(ParseError, match=r"^hf://org/m: the hub gives no list of its files"):
        an.parse("hf://org/m")


def test_a_listing_is_asked_for_again(hub: RangeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    answers, answer = [503, 429], Handler._list

    def failing(self: Handler, *asked: str) -> None:
        if answers:
            return self._reply(answers.pop())
        return answer(self, *asked)

    monkeypatch.setattr(Handler, "_list", failing)
    assert len(an.parse("hf://org/m")) == 24
    hosts = {seen.host for seen in hub.log if "/api/" in seen.path}
    assert (hosts, answers) == ({"127.0.0.1"}, [])


def test_a_listing_in_chunks(hub: RangeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    reply = Handler._reply

    def chunked(self: Handler, status: int, body: bytes = b"", *rest: Any, **headers: Any) -> None:
        if "/api/" not in self.path:
            return reply(self, status, body, *rest, **headers)
        self.send_response(status)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in (body[:100], body[100:], b""):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        return None

    monkeypatch.setattr(Handler, "_reply", chunked)
    assert len(an.parse("hf://org/m")) == 24


HOSTILE = (
    *("../../evil.json", "/etc/evil.json", "a/../../evil.json", "..\\evil.json", "C:evil.json"),
    *("./x.json", "a//b.json", "", "inner"),
)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_outside(hub: RangeServer, tmp_path: Path, name: str) -> None:
    hub.more_files = [name]
    before = {p for p in tmp_path.rglob("*") if "evil" in p.name}
    with an.parse("hf://org/m") as found:
        report = found.convert(tmp_path / "out", "bf16")
    assert {p for p in tmp_path.rglob("*") if "evil" in p.name} == before
    assert name in [dropped.name for dropped in report.dropped]


def test_an_index_that_leads_out(hub: RangeServer) -> None:
    assert hub.hub is not None
    index = hub.hub / "org" / "m" / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"w": "../../../etc/evil.safetensors"}}')
    with pytest.raises(AnamnesisError, match=r"^hf://org/m.*leads out of the directory"):
        an.parse("hf://org/m")


def test_errors_name_the_file_where_it_is(hub: RangeServer, tmp_path: Path) -> None:
    assert hub.hub is not None
    (hub.hub / "org" / "m" / "config.json").write_text("{")
    with pytest.raises(ParseError, match=r"^hf://org/m/config.json: not valid JSON"):
        an.parse("hf://org/m")


def test_a_store_without_etags(
    hub: RangeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub's own word identifies the content; also when an address has expired."""
    send = Handler.send_header

    def send_header(self: Handler, name: str, value: str) -> None:
        if name not in ("ETag", "Last-Modified"):
            send(self, name, value)

    monkeypatch.setattr(Handler, "send_header", send_header)
    hub.signed_for = 0.3
    assert hub.hub is not None
    path = model(hub.hub / "org" / "m", "lone.safetensors")
    with an.parse("hf://org/m/lone.safetensors") as found:
        time.sleep(0.4)
        found.remember(tmp_path / "far.safetensors")
        an.remember(path, tmp_path / "near.safetensors")
        far, near = (tmp_path / f"{name}.safetensors" for name in ("far", "near"))
        assert far.read_bytes() == near.read_bytes()
        hub.linked = "other"
        time.sleep(0.4)
        with pytest.raises(ParseError, match="was replaced while it was read"):
            found.remember(far, force=True)


def test_files_to_scan(hub: RangeServer) -> None:
    files = files_at("hf://org/m")
    assert files is not None
    assert f"hf://org/m@{COMMIT}/inner/words.txt" in files
    assert files_at("hf://org/m/tokenizer.json") is None
    assert [seen.path for seen in hub.log if "/resolve/" in seen.path] == []


def test_places() -> None:
    assert HubPlace.parse("hf://a/b@refs%2Fpr%2F1/c") == ("a/b", "refs/pr/1", "c")
    assert HubPlace.parse("hf://a/b@refs/pr/1/c/d") == ("a/b", "refs/pr/1", "c/d")
    assert str(HubPlace.parse("hf://a/b@refs/pr/1/c/")) == "hf://a/b@refs%2Fpr%2F1/c"
