"""Real vocabularies of llama.cpp: what we write of them encodes alike, and becomes them again.

The files are made of the vocabularies that llama.cpp keeps for its own tests, with texts and their
ids beside them, and read by its converter, by transformers and by sentencepiece.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import transformers
from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer

import anamnesis as an
from anamnesis.architectures.tokenizers import Folder, read_vocabulary, vocabulary_files
from anamnesis.base.limits import Budget
from helpers.scripts import HELPERS
from helpers.texts import TEXTS
from helpers.tokenizer_dirs import shown

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))

import ggml_c

pytestmark = pytest.mark.slow

MODELS = ggml_c.llama_cpp() / "models"
KINDS = {
    "llama-spm": "llama",
    "phi-3": "llama",
    "llama-bpe": "llama",
    "gemma-4": "gemma4",
    "bert-bge": "bert",
    "nomic-bert-moe": "unigram",
    **dict.fromkeys(("command-r", "deepseek-coder", "deepseek-llm", "falcon", "gpt-2"), "gpt2"),
    **dict.fromkeys(("mpt", "qwen2", "qwen35", "refact", "starcoder"), "gpt2"),
}
# One of each kind runs on a push; the others, or larger ones, are weekly.
ON_A_PUSH = {"llama-spm", "bert-bge", "nomic-bert-moe", "gpt-2"}
NAMES = [
    name if name in ON_A_PUSH else pytest.param(name, marks=pytest.mark.weekly) for name in KINDS
]
# Where the reference is not right; docs/gguf-models.md says why.
WRONG = {"phi-3": {"scores", "token_type"}, "qwen35": {"pre"}}
# What cannot be told from files, or was written by an older converter.
OTHER = {
    "phi-3": {"scores", "token_type"},
    "bert-bge": {"pre", "cls_token_id", "bos_token_id", "eos_token_id", "token_type"},
    "nomic-bert-moe": {"tokens"},
    "command-r": {"token_type"},
    "deepseek-coder": {"token_type"},
    "mpt": {"pre", "token_type"},
    "falcon": {"token_type"},
    "refact": {"token_type"},
    "starcoder": {"token_type"},
}


def metadata(name: str) -> dict[str, Any]:
    with an.parse(MODELS / f"ggml-vocab-{name}.gguf") as model:
        keys = [key for key in model.metadata if key.startswith("tokenizer.")]
        return {key: model.metadata[key] for key in keys}


def config_of(stored: dict[str, Any]) -> dict[str, Any]:
    told = {"vocab_size": len(stored["tokenizer.ggml.tokens"]), "model_type": "llama"}
    if "tokenizer.ggml.token_type_count" in stored:
        told["type_vocab_size"] = stored["tokenizer.ggml.token_type_count"]
    return told


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Directories with the files of a vocabulary, each made once."""
    top = tmp_path_factory.mktemp("vocabularies")

    def make(name: str) -> Path:
        root = top / name
        if not root.exists():
            root.mkdir()
            stored = metadata(name)
            (root / "config.json").write_text(json.dumps(config_of(stored)))
            for file, raw in vocabulary_files(stored).items():
                (root / file).write_bytes(raw)
        return root

    return make


def read(root: Path, name: str) -> dict[str, Any]:
    config = json.loads((root / "config.json").read_text())
    return shown(read_vocabulary(Folder(root, Budget()), config, KINDS[name]))


@pytest.fixture
def reference(made: Callable[[str], Path], tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """What the reference's converter makes of one of them."""

    def convert(name: str) -> dict[str, Any]:
        root, jobs, out = made(name), tmp_path / "jobs", tmp_path / "out"
        config = json.loads((root / "config.json").read_text())
        jobs.write_text(json.dumps([[str(root), KINDS[name], config]]))
        program = HELPERS / "reference_tokenizers.py"
        command = [sys.executable, str(program), str(ggml_c.llama_cpp()), str(jobs), str(out)]
        subprocess.run(command, check=True)
        (found,) = json.loads(out.read_text())
        return cast("dict[str, Any]", found)

    return convert


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", NAMES)
def test_keys_are_those_of_the_reference(
    name: str, made: Callable[[str], Path], reference: Callable[[str], dict[str, Any]]
) -> None:
    found, wanted = read(made(name), name), shown(reference(name))
    assert list(found) == list(wanted)
    wrong = {f"tokenizer.ggml.{key}" for key in WRONG.get(name, ())}
    assert {key for key in wanted if found[key] != wanted[key]} == wrong


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_is_read_again(name: str, made: Callable[[str], Path]) -> None:
    found, stored = read(made(name), name), shown(metadata(name))
    other = {f"tokenizer.ggml.{key}" for key in OTHER.get(name, ())}
    assert {key for key in stored if found.get(key) != stored[key]} <= other


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "name", [n for n in KINDS if (MODELS / f"ggml-vocab-{n}.gguf.inp").exists()]
)
def test_texts_have_the_ids_that_llama_cpp_tests_for(
    name: str, made: Callable[[str], Path]
) -> None:
    inputs = (MODELS / f"ggml-vocab-{name}.gguf.inp").read_text(encoding="utf-8")
    texts = inputs.split("\n__ggml_vocab_test__\n")
    lines = (MODELS / f"ggml-vocab-{name}.gguf.out").read_text(encoding="utf-8").split("\n")
    told = Tokenizer.from_file(str(made(name) / "tokenizer.json"))
    assert len(texts) > 40
    for text, line in zip(texts, lines, strict=False):
        assert told.encode(text, add_special_tokens=False).ids == list(map(int, line.split())), text


@pytest.mark.parametrize("name", NAMES)
def test_transformers_encodes_as_the_library(name: str, made: Callable[[str], Path]) -> None:
    """Classes of transformers take no tokenizer.json as it is, unless its config asks for it."""
    root = made(name)
    auto = transformers.AutoTokenizer.from_pretrained(root)
    library = Tokenizer.from_file(str(root / "tokenizer.json"))
    for text in TEXTS:
        assert auto.encode(text, add_special_tokens=False) == (
            library.encode(text, add_special_tokens=False).ids
        )


def test_merges_join_as_scores_do(made: Callable[[str], Path]) -> None:
    root = made("llama-spm")
    merged = Tokenizer.from_file(str(root / "tokenizer.json"))
    scored = SentencePieceProcessor(model_file=str(root / "tokenizer.model"))
    for text in TEXTS:
        assert merged.encode(text, add_special_tokens=False).ids == scored.encode(text), text
