"""What a GGUF says of a model in general is README.md's front matter, and comes back from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import anamnesis as an
from anamnesis.architectures.front_matter import front_matter
from anamnesis.architectures.general_keys import general_keys, model_card
from anamnesis.base.limits import Budget, ParseLimits
from anamnesis.cli.demo_models import DEMOS
from anamnesis.formats.gguf.values import untyped

GENERAL: dict[str, Any] = {
    "general.name": "Tiny: a 'model' # of \"none\"",
    "general.author": "no",
    "general.version": "3.10",
    "general.organization": "Nobody",
    "general.finetune": "it",
    "general.basename": "tiny",
    "general.description": "Two\nlines, \u2028 of — text\x85 and\ttabs; 🙂 [x] {y}",
    "general.size_label": "7B",
    "general.license": "apache-2.0",
    "general.license.name": "null",
    "general.license.link": "https://example.org/?a=b#c",
    "general.source.url": "https://example.org",
    "general.base_model.count": 2,
    "general.base_model.0.name": "Qwen3 8B",
    "general.base_model.0.organization": "Qwen",
    "general.base_model.0.repo_url": "https://huggingface.co/Qwen/Qwen3-8B",
    "general.base_model.1.name": "another",
    "general.base_model.1.author": "somebody",
    "general.dataset.count": 1,
    "general.dataset.0.name": "words",
    "general.tags": ["text-generation", "2024", "- dash", "no", ""],
    "general.languages": ["en", "no", "de"],
}


def back(readme: bytes, root: Path) -> dict[str, Any]:
    root.mkdir(exist_ok=True)
    (root / "README.md").write_bytes(readme)
    found = general_keys(root, {}, {"w": (7000, 1_000_000)}, Budget(ParseLimits()))
    return dict(untyped(found))


def test_all_of_it_comes_back(tmp_path: Path) -> None:
    readme, known = model_card(GENERAL, 7_000_000_000)
    assert known == GENERAL.keys()
    assert back(readme, tmp_path / "x") == GENERAL


@pytest.mark.parametrize("key", ["general.name", "general.license", "general.source.url"])
@pytest.mark.parametrize("text", ["", "---", "~", "a: b", "1e5", "\x00\x1b", "\udcff", "'", "- x"])
def test_any_text_is_read_as_it_was(key: str, text: str, tmp_path: Path) -> None:
    readme, known = model_card({key: text}, 1)
    said = {key: text} if text else {}
    assert known == said.keys()
    found = back(readme, tmp_path / "x")
    assert {name: found[name] for name in said} == said


@pytest.mark.parametrize("value", [7, ["a", 1], {}, None])
def test_what_is_of_another_type_is_not_taken(value: Any) -> None:
    keys = dict.fromkeys(("general.name", "general.tags", "general.base_model.count"), value)
    assert model_card(keys, 1) == (b"", set())


def test_the_hub_knows_what_it_is_based_on() -> None:
    readme, _ = model_card(GENERAL, 7_000_000_000)
    card: dict[str, Any] = front_matter(readme.decode())
    assert card["base_model"][0] == "Qwen/Qwen3-8B"
    assert card["language"] == ["en", "no", "de"]
    assert card["license"] == "apache-2.0"


def test_a_directory_made_of_a_gguf_has_it(tmp_path: Path) -> None:
    for path, raw in DEMOS["llama"].make().items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(raw)
    an.convert(tmp_path / "llama-tiny", tmp_path / "a.gguf", "gguf-f32", metadata=GENERAL)
    report = an.convert(tmp_path / "a.gguf", f"{tmp_path / 'back'}/", "f32")
    assert not [left for left in report.dropped if left.name in GENERAL]
    an.convert(tmp_path / "back", tmp_path / "b.gguf", "gguf-f32")
    with an.parse(tmp_path / "a.gguf") as one, an.parse(tmp_path / "b.gguf") as other:
        assert {key: other.metadata.get(key) for key in GENERAL} == GENERAL
        assert one.metadata.keys() == other.metadata.keys()
