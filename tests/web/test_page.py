"""The page's Python gives the same without numpy and C modules as with them."""

from __future__ import annotations

import json
import os
import random
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import site_inspect

import anamnesis as an
from anamnesis import _parse
from helpers import web_page
from helpers.gguf_handmade import STRING, Array, gguf_bytes
from helpers.handmade import safetensors_bytes
from helpers.npy_cases import archive, npy
from helpers.web_page import all_shown, as_array, text_of

REAL = os.environ.get("ANAMNESIS_REAL")
ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "model.layers.0.mlp.up_proj.weight": np.ones((128, 128), np.float32),
    "model.norm.weight": np.zeros(128, np.float16),
}
FP8 = {
    "up.weight": ("F8_E4M3", [128, 128], bytes(128 * 128)),
    "up.weight_scale_inv": ("F32", [1, 1], b"\0\0\x80\x3f"),
}
MADE = {
    "fp8.safetensors": safetensors_bytes(FP8, {"format": "pt"}),
    "cut.safetensors": safetensors_bytes(FP8)[:-1],
    "escaped.safetensors": safetensors_bytes({"<b>\\\N{SNOWMAN}": ("U8", [1], b"a")}),
    "words.gguf": gguf_bytes({"words": Array(STRING, ["a", "\N{SNOWMAN}"])}),
    "array.npy": npy(ARRAYS["model.norm.weight"]),
    "attack.pkl": b"cos\nsystem\n(S'true'\ntR.",
    "nested.npz": archive({"inner.zip": archive({"a": b"b"})}),
    "empty.pth": b"",
    "page.gguf": b"<!doctype html>",
}
SAVED = ("a.safetensors", "a.gguf", "a.npz", "a.pth")


def without_c(paths: list[str]) -> Any:
    script = [sys.executable, web_page.__file__, *paths]
    stubs = json.dumps(site_inspect.stubs())
    done = subprocess.run(script, input=stubs, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_all_containers_need_neither_numpy_nor_more_of_c_than_the_stubs(tmp_path: Path) -> None:
    for name, raw in MADE.items():
        (tmp_path / name).write_bytes(raw)
    for name in SAVED:
        an.save(ARRAYS, tmp_path / name)
    paths = [str(tmp_path / name) for name in (*SAVED, *MADE)]
    shown = all_shown(paths)
    assert without_c(paths) == shown
    by_name = dict(zip((*SAVED, *MADE), shown[::2], strict=True))
    for name in SAVED:
        assert len(by_name[name]["tensors"]) == 2
    assert "2 are alike" in text_of(shown[3]), "the GGUF beside the safetensors"
    assert "os.system" in text_of(by_name["attack.pkl"]["html"])
    assert "an archive inside the archive" in text_of(by_name["nested.npz"]["html"])
    assert "truncated" in text_of(by_name["cut.safetensors"]["html"])
    assert "numpy" not in json.dumps(shown).replace("numpy.load", "")


@pytest.mark.slow
@pytest.mark.skipif(not REAL, reason="ANAMNESIS_REAL names no folder of checkpoints")
def test_published_models_need_no_more(tmp_path: Path) -> None:
    kinds = (".safetensors", ".gguf", ".pth", ".npz")
    paths = sorted(str(p) for p in Path(REAL or "").rglob("*") if p.suffix in kinds)
    shown = all_shown(paths)
    assert without_c(paths) == shown
    assert [p for p, one in zip(paths, shown[::2], strict=True) if not one["tensors"]] == []


def test_strings_are_walked_as_in_c() -> None:
    stub = runpy.run_path(str(site_inspect.WEB / "_parse.py"))
    rng = random.Random(1)
    for _ in range(3000):
        raw = b"".join(
            rng.randrange(6).to_bytes(4, rng.choice(["little", "big"])) + rng.randbytes(3)
            for _ in range(rng.randrange(5))
        )
        src, pos, count = memoryview(raw), rng.randrange(4), rng.randrange(5)
        form = (rng.choice([4, 8]), rng.random() < 0.5)
        longest = rng.choice([2, 5, 1 << 40])
        given = (src, pos, count, *form)
        assert stub["read_strings"](*given) == _parse.read_strings(*given)
        assert stub["skip_strings"](*given, longest) == _parse.skip_strings(*given, longest)


def answer(status: int, raw: bytes = b"", **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    length = None if status == 200 and not raw else len(raw)
    return SimpleNamespace(
        status=status, headers=named, body=as_array(raw), length_remaining=length
    )


MODEL = safetensors_bytes(FP8)
ANSWERS = {
    "of a range": (answer(206, MODEL, Content_Range=f"bytes 0-{len(MODEL) - 1}/{len(MODEL)}"), ""),
    "of all, which is short": (answer(200, MODEL), ""),
    "of all, which is long": (answer(200), "sends the whole file where a range is asked for"),
    "of another range": (answer(206, MODEL, Content_Range="bytes 1-2/3"), "gives another range"),
    "without a size": (answer(206, MODEL), "gives another range"),
    "none": (answer(404), "no such file (HTTP 404)"),
    "refused": (answer(403), "access is refused (HTTP 403)"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_answers_of_a_server(case: str) -> None:
    given, problem = ANSWERS[case]
    url = "https://user:secret@example.org/a.safetensors"
    shown = json.loads(web_page.page().read_address("a", url, lambda start, stop: given))
    assert len(shown["tensors"]) == (0 if problem else 2)
    assert problem in text_of(shown["html"])
    assert "secret" not in json.dumps(shown)


def test_what_the_browser_cannot_read_any_more(tmp_path: Path) -> None:
    def read(start: int, stop: int) -> Any:
        raise RuntimeError("NotReadableError")

    shown = json.loads(web_page.page().read_file("a", "a.gguf", 100, read))
    assert text_of(shown["html"]) == (
        "a.gguf: is a folder, or was changed since it was chosen; choose a file again"
    )
