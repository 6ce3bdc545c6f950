"""What `inspect` says of a model first: name, mix, licence, template, and what loads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from anamnesis.cli.demo_models import DEMOS
from anamnesis.convert.loaders.verdicts import Facts, verdicts
from anamnesis.convert.report.card import _STORED, OF_GGUF, encoding_listed

TEMPLATE = json.dumps({"chat_template": "{{ messages }}"})


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    for name, raw in DEMOS["llama"].make().items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(raw)
    return tmp_path / "llama-tiny"


def test_of_a_gguf(llama: Path) -> None:
    (llama / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
    (llama / "tokenizer_config.json").write_text(TEMPLATE)
    an.convert(llama, llama.parent / "x.gguf", "gguf-q4_k_m")
    found = an.inspect(llama.parent / "x.gguf")
    assert (found.name, found.size_label, found.mix) == ("Llama Tiny", "1.3M", "Q4_K_M")
    assert (found.license, found.chat_template) == ("apache-2.0", True)
    assert found.loaded_by == ("llama.cpp", "gguf-py")
    lines = str(found).splitlines()
    for line in (
        "Name:        Llama Tiny, 1.3M",
        "License:     apache-2.0",
        "Chat:        has a template",
        "Loads in:    llama.cpp, gguf-py",
    ):
        assert line in lines
    assert any(line.startswith("Types:       Q4_K_M: Q4_K (") for line in lines)


@pytest.mark.parametrize(
    ("files", "license", "template"),
    [
        ({}, None, None),
        ({"README.md": "---\nlicense: mit\n---\n"}, "mit", None),
        ({"README.md": b"\xff\xfe---"}, None, None),
        ({"README.md": "---\nlicense:\n- a\n- b\n---\n"}, None, None),
        ({"tokenizer_config.json": TEMPLATE}, None, True),
        ({"tokenizer_config.json": "{}"}, None, False),
        ({"tokenizer_config.json": "{", "chat_template.jinja": ""}, None, True),
    ],
)
def test_of_a_directory(
    llama: Path, files: dict[str, Any], license: str | None, template: bool | None
) -> None:
    for name, text in files.items():
        (llama / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    found = an.inspect(llama)
    assert (found.name, found.size_label) == ("llama-tiny", "1.3M")
    assert (found.license, found.chat_template) == (license, template)
    assert found.loaded_by == ("transformers", "vLLM", "SGLang", "ComfyUI")


def test_a_card_beyond_the_limits_is_not_read(llama: Path) -> None:
    (llama / "README.md").write_text("---\nlicense: mit\n" + "a: b\n" * 100_000 + "---\n")
    found = an.inspect(llama, limits=an.ParseLimits(max_item_count=50_000))
    assert (found.license, found.size_label) == (None, "1.3M")


def test_a_snapshot_has_the_name_of_its_repository(llama: Path, tmp_path: Path) -> None:
    root = tmp_path / "models--org--name" / "snapshots" / "0f"
    root.parent.mkdir(parents=True)
    llama.rename(root)
    assert an.inspect(root).name == "org/name"


@pytest.mark.parametrize(
    ("metadata", "programs"),
    [
        ({"general.architecture": "flux"}, ("ComfyUI-GGUF", "stable-diffusion.cpp")),
        ({"general.architecture": "clip"}, ("llama.cpp (--mmproj)",)),
        ({"general.architecture": "llama", "general.type": "adapter"}, ("llama.cpp (--lora)",)),
        ({"general.architecture": ["llama"]}, OF_GGUF),
        ({}, ()),
    ],
)
def test_other_ggufs(tmp_path: Path, metadata: dict[str, Any], programs: tuple[str, ...]) -> None:
    an.save({"x": np.ones(4, np.float32)}, tmp_path / "x.gguf", metadata=metadata)
    assert an.inspect(tmp_path / "x.gguf").loaded_by == programs


def loading(encoding: str) -> tuple[str, ...]:
    found = verdicts(Facts((encoding,), frozenset()))
    return tuple(verdict.program for verdict in found if verdict.outcome == "loads")


def test_programs_are_those_of_the_table() -> None:
    assert loading("gguf") == OF_GGUF
    assert all(loading(encoding) for _, _, encoding in _STORED)


@pytest.mark.slow
@pytest.mark.parametrize(
    "encoding", sorted({encoding for *_, encoding in _STORED} - {"gptoss-mxfp4"})
)
def test_what_is_written_is_known_again(llama: Path, encoding: str) -> None:
    an.convert(llama, llama.parent / "out", encoding)
    assert an.inspect(llama.parent / "out").loaded_by == loading(encoding)


@pytest.mark.parametrize(
    ("scheme", "encoding"),
    [
        ("INT8, per channel", "int8"),
        ("INT8, per channel, zero points", None),
        ("INT4, groups of 128, zero points", "int4-asym"),
        ("INT4, groups of 128, zero points, act-order", None),
        ("INT4, groups of 32", None),
    ],
)
def test_what_was_not_tried_is_not_said(scheme: str, encoding: str | None) -> None:
    assert encoding_listed("compressed-tensors", scheme) == encoding


def test_a_lone_file_says_nothing(tmp_path: Path) -> None:
    an.save({"x": np.ones(4, np.float32)}, tmp_path / "x.safetensors")
    found = an.inspect(tmp_path / "x.safetensors")
    assert (found.name, found.loaded_by, found.chat_template) == (None, (), None)
