"""The page in headless Chromium: what it shows, what it reads, and that it asks nobody else.

`ANAMNESIS_SITE` names a built site; without, the page alone is built.
"""

from __future__ import annotations

import json
import mimetypes
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import site_inspect

import anamnesis as an
from helpers.handmade import safetensors_bytes
from helpers.range_server import Handler, RangeServer, serving

pytestmark = pytest.mark.browser

DRIVER = Path(__file__).with_name("drive.mjs")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
MIB = 1 << 20
ARRAYS = {
    "model.layers.0.mlp.up_proj.weight": np.ones((1024, 512), np.float32),
    "model.layers.0.mlp.down_proj.weight": np.ones((512, 1024), np.float32),
}
Seen = dict[str, Any]
Drive = Callable[..., Seen]


class PageHandler(Handler):
    """Serves files with their types, as browsers want them."""

    def _file(self, path: Path, **headers: Any) -> None:
        super()._file(path, Content_Type=mimetypes.guess_type(path.name)[0] or "a/b", **headers)


class OpenHandler(Handler):
    """Lets pages of other sites read."""

    shows = "Content-Range"

    def _reply(
        self, status: int, body: bytes = b"", cut: int | None = None, /, **headers: Any
    ) -> None:
        headers["Access_Control_Allow_Origin"] = "*"
        headers["Access_Control_Expose_Headers"] = self.shows
        super()._reply(status, body, cut, **headers)


class SilentHandler(OpenHandler):
    """Does not let them see how long a file is."""

    shows = "ETag"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RangeServer]:
    built = Path(os.environ.get("ANAMNESIS_SITE") or tmp_path_factory.mktemp("site"))
    if "ANAMNESIS_SITE" not in os.environ:
        site_inspect.build(built)
    with serving(built) as server:
        server.RequestHandlerClass = PageHandler
        yield server


@pytest.fixture(scope="module")
def drive(site: RangeServer, tmp_path_factory: pytest.TempPathFactory) -> Drive:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert browser, "chromium is missing: apt-get install chromium"
    playwright = site_inspect.install(tmp_path_factory.mktemp("npm")) / "playwright-core"

    def run(*steps: tuple[str, ...], **options: Any) -> Seen:
        job = {"address": f"{site.url}/{site_inspect.PAGE}", "steps": steps, **options}
        command = ["node", str(DRIVER), str(playwright), browser]
        done = subprocess.run(
            command, input=json.dumps(job), capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, done.stderr[-2000:]
        seen: Seen = json.loads(done.stdout)
        print(f"ready after {seen['ready']} ms, load {os.getloadavg()[0]}")
        return seen

    return run


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name in ("a.safetensors", "a.gguf", "a.npz", "a.pth"):
        an.save(ARRAYS, folder / name)
    whole = (folder / "a.safetensors").read_bytes()
    (folder / "cut.safetensors").write_bytes(whole[:-1])
    (folder / "attack.pkl").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    many = {f"layers.{i}.<script>alert(1)</script>": ("U8", [1], b"a") for i in range(1000)}
    (folder / "many.safetensors").write_bytes(safetensors_bytes(many))
    return folder


def bytes_of(text: str) -> int:
    """Return how many bytes a slot says that it read."""
    return int(text.partition("Read ")[2].partition(" of ")[0].replace(",", ""))


def test_files_of_each_format(drive: Drive, site: RangeServer, models: Path) -> None:
    names = ["a.safetensors", "a.gguf", "a.npz", "a.pth", "cut.safetensors", "attack.pkl"]
    seen = drive(*(("file", "a", str(models / name)) for name in names))
    texts = [state["found-a"] for state in seen["states"]]
    for name, text in zip(names[:4], texts, strict=False):
        assert "model.layers.0.mlp.up_proj.weight" in text
        assert f"of {(models / name).stat().st_size:,} bytes" in text
    assert bytes_of(texts[0]) == bytes_of(texts[1]) == 4096
    assert max(bytes_of(text) for text in texts[2:4]) < MIB + MIB // 8, "the scan reads so far"
    assert "Pickles: safe" in texts[3]
    assert "cut.safetensors: truncated" in texts[4]
    assert "Pickles: dangerous" in texts[5]
    assert "os.system" in texts[5]
    assert seen["errors"] == []
    assert all(address.startswith(site.url) for address in seen["requests"])


def test_two_files_are_compared_at_any_width(drive: Drive, models: Path) -> None:
    first, second = (str(models / name) for name in ("a.safetensors", "many.safetensors"))
    steps = (("file", "a", second), ("all", "a"), ("file", "b", first), ("file", "a", first))
    seen = drive(*steps, width=390, colorScheme="dark")
    some, all_of_them, _, same = seen["states"]
    assert (some["rows"], all_of_them["rows"]) == (301, 1001)
    assert "<script>alert(1)</script>" in some["found-a"]
    assert "2 weights in both: 2 alike" in same["comparison"]
    assert max(state["overflow"] for state in seen["states"]) <= 0
    assert seen["errors"] == []


def test_addresses_are_read_by_ranges(drive: Drive, models: Path) -> None:
    with serving(models) as server:
        server.RequestHandlerClass = OpenHandler
        names = ("a.safetensors", "none.gguf", "a.pth")
        seen = drive(*(("url", "a", f"{server.url}/{name}") for name in names))
    there, lost, pth = (state["found-a"] for state in seen["states"])
    assert "model.layers.0.mlp.up_proj.weight" in there
    assert bytes_of(there) == 128 << 10
    assert "no such file (HTTP 404)" in lost
    assert "Pickles: safe" in pth
    sent = sum(one.n_bytes for one in server.log if one.path == "/a.pth")
    assert bytes_of(pth) == sent < MIB + MIB // 4


def test_servers_that_do_not_let_a_page_read(drive: Drive, models: Path) -> None:
    with serving(models) as closed, serving(models) as whole, serving(models) as silent:
        whole.RequestHandlerClass, silent.RequestHandlerClass = OpenHandler, SilentHandler
        whole.fault = lambda handler, n: "200"
        seen = drive(*(("url", "a", f"{one.url}/a.npz") for one in (closed, whole, silent)))
        sent = sum(one.n_bytes for one in closed.log + silent.log)
    texts = [state["found-a"] for state in seen["states"]]
    assert "(CORS); download the file" in texts[0]
    assert "sends the whole file where a range is asked for" in texts[1]
    assert "does not show pages of other sites how long the file is; download" in texts[2]
    assert sent <= 256 << 10


@pytest.mark.parametrize(
    "address",
    ["hf://org/model@v1/a.gguf", "https://huggingface.co/org/model/blob/v1/a.gguf"],
)
def test_addresses_of_the_hub(drive: Drive, address: str) -> None:
    seen = drive(("url", "a", address))
    assert "https://huggingface.co/org/model/resolve/v1/a.gguf" in seen["requests"]
