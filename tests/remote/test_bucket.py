"""Objects of buckets, read in ranges from an S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from moto.server import ThreadedMotoServer
from obstore.store import from_url

import anamnesis as an
from anamnesis.base.errors import ParseError
from anamnesis.sources import bucket
from helpers.remote_models import directory, failure, model, same_files


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def store(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    import urllib3

    names = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_ENDPOINT_URL": endpoint}
    for name, value in {**names, "AWS_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    bucket._store.cache_clear()
    urllib3.request("PUT", f"{endpoint}/models")
    return from_url("s3://models", client_options={"allow_http": True})


def upload(store: Any, root: Path, prefix: str = "") -> None:
    for path in root.rglob("*"):
        if path.is_file():
            store.put(prefix + path.relative_to(root).as_posix(), path)


@pytest.mark.parametrize("container", ["safetensors", "gguf", "npz", "pth"])
def test_each_container(store: Any, tmp_path: Path, container: str) -> None:
    path = model(tmp_path, f"m.{container}")
    upload(store, tmp_path)
    with an.parse(path) as there, an.parse(f"s3://models/m.{container}") as here:
        for name in there:
            assert np.array_equal(here[name].numpy(), there[name].numpy())


def test_a_folder_is_converted_as_on_disk(store: Any, tmp_path: Path) -> None:
    directory(tmp_path / "m")
    upload(store, tmp_path / "m", "deep/m/")
    an.remember(tmp_path / "m", tmp_path / "near")
    an.remember("s3://models/deep/m", tmp_path / "far")
    assert same_files(tmp_path / "near", tmp_path / "far")


def test_an_object_that_is_replaced(store: Any, tmp_path: Path) -> None:
    model(tmp_path, "m.safetensors")
    upload(store, tmp_path)
    with an.parse("s3://models/m.safetensors") as found:
        store.put("m.safetensors", b"\0" * (1 << 20))
        with pytest.raises(ParseError, match="was replaced while it was read"):
            found.remember(tmp_path / "out.safetensors")
    assert not (tmp_path / "out.safetensors").exists()


@pytest.mark.parametrize("url", ["s3://models/none.gguf", "s3://models/none/", "s3://other/x.gguf"])
def test_what_is_not_there(store: Any, url: str) -> None:
    with pytest.raises(FileNotFoundError, match="no such object"):
        an.parse(url)


def test_an_empty_object(store: Any) -> None:
    store.put("empty.safetensors", b"")
    assert isinstance(failure(lambda: an.parse("s3://models/empty.safetensors")), ParseError)


def test_an_address_without_a_bucket() -> None:
    with pytest.raises(ParseError, match="is not s3://BUCKET/KEY"):
        an.parse("s3:///x.gguf")


def test_one_object_of_a_quantised_model(store: Any, tmp_path: Path) -> None:
    """Its config is beside it."""
    directory(tmp_path / "m")
    upload(store, tmp_path / "m", "one/")
    shard = min(p.name for p in (tmp_path / "m").glob("*.safetensors"))
    near, far = an.inspect(tmp_path / "m" / shard), an.inspect(f"s3://models/one/{shard}")
    assert near.schemes == far.schemes
