"""Pages about models: one file that needs nothing else, true to what it is about."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import anamnesis as an
from anamnesis.cli.app import cli
from helpers.handmade import Entry, write_safetensors
from helpers.pairs_of_models import llama

VOID = {"meta", "br"}


class Page(HTMLParser):
    """Checks that tags are closed in order, and gathers what a page would fetch or run."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check_page(html: str) -> Page:
    page = Page(html)
    assert not {"script", "link", "iframe", "img", "object"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name in ("src", "href") or name[:2] == "on"]
    assert "http" not in html.replace("http-equiv", "")
    assert "url(" not in html
    return page


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("to", ["fp8-block", "gguf-q4_k_m", "mxfp4", None])
def test_a_page_of_one_model(tmp_path: Path, to: str | None, values: bool) -> None:
    path = llama(tmp_path / "a")
    if to:
        path = tmp_path / ("b.gguf" if to.startswith("gguf") else "b")
        an.convert(tmp_path / "a", path, to)
    found = an.report(path, values=values)
    html = found.to_html()
    check_page(html)
    assert ("Headers alone" in html) is not values
    assert "Bits per value by layer" in html
    assert check_page(found._repr_html_())


def test_a_page_of_two_models(tmp_path: Path) -> None:
    a = llama(tmp_path / "a")
    an.convert(a, tmp_path / "b", "fp8-block")
    found = an.report(a, tmp_path / "b", values=True)
    assert isinstance(found, an.Comparison)
    html = found.to_html()
    page = check_page(html)
    assert page.tags.count("rect") > 2 * 9  # cells of the map
    assert "does not measure the quality" in html
    worst = re.findall(r"<td class=\"name\">(model[^<{]*)</td>", html)
    assert worst[:14] == [weight.name for weight in found.differing][:14]


def test_names_and_metadata_are_only_text(tmp_path: Path) -> None:
    name = "layers.0.<script>alert(1)</script>.weight"
    an.save({name: np.ones((2, 2), np.float32)}, tmp_path / "a.safetensors")
    for html in (
        an.report(tmp_path / "a.safetensors", values=True).to_html(),
        an.report(tmp_path / "a.safetensors", tmp_path / "a.safetensors").to_html(),
    ):
        check_page(html)
        assert "&lt;script&gt;" in html


def test_the_command_writes_a_page_and_replaces_none(tmp_path: Path) -> None:
    a, page = str(llama(tmp_path / "a")), tmp_path / "r.html"

    def run(*args: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli, ["report", *args])
        return done.exit_code, done.output

    assert run(a, "-o", str(page)) == (0, "")
    first = page.read_bytes()
    code, message = run(a, a, "-o", str(page))
    assert (code, "exists" in message, page.read_bytes() == first) == (1, True, True)
    assert run(a, a, "-o", str(page), "--force")[0] == 0
    assert run(a, "-o", "-")[1].startswith("<!doctype html>")
    assert run(a, a, a)[0] == 2


@pytest.mark.slow
def test_a_page_of_90_000_tensors_is_small_and_quick(tmp_path: Path) -> None:
    one: dict[str, Entry] = {}
    for layer in range(58):
        for expert in range(256):
            for part in ("gate_proj", "up_proj", "down_proj"):
                at = f"model.layers.{layer}.mlp.experts.{expert}.{part}"
                one[f"{at}.weight"] = ("F8_E4M3", (16, 16), b"\x30" * 256)
                one[f"{at}.weight_scale_inv"] = ("F32", (1, 1), bytes(4))
    path = write_safetensors(tmp_path / "m.safetensors", one)
    started = time.process_time()
    html = an.report(path).to_html()
    assert time.process_time() - started < 10
    assert len(html) < 5_000_000
    assert "model.layers.{0-57}.mlp.experts.{0-255}.gate_proj" in html
