"""Tiny Hugging Face directories made again from their records, and what llama.cpp makes of them.

Recorded by `tools/record_hf_gguf.py`; neither torch nor llama.cpp is needed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import gguf

import anamnesis as an
from helpers import tiny_files, vocabularies
from helpers.tiny_files import Tensor

__all__ = ["NAMES", "Recorded", "described", "digest", "recorded", "remake", "through_gguf"]

_LONGEST = 64  # an array that is recorded as it is
FOLDER = Path(__file__).parents[1] / "architectures/recorded"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json") if path != vocabularies.RECORDED)


@dataclass(frozen=True)
class Recorded:
    """A model, and its GGUF.

    Attributes
    ----------
    stored : list of Tensor
        Those of the directory: name, dtype as safetensors spells it, shape.
    keys : dict of str to dict
        The GGUF's: `type` and `value`; `array` also has `of`, and a long one `length` and `sha256`
        of it as JSON, instead of `value`.
    tensors : dict of str to (dtype, shape outermost first, sha256 of the bytes)
        The GGUF's.
    """

    model: str
    note: str
    flags: list[str]
    vocabulary: str
    n_shards: int
    files: dict[str, str]
    digests: dict[str, str]
    stored: list[Tensor]
    keys: dict[str, dict[str, Any]]
    tensors: dict[str, tuple[str, list[int], str]]

    @property
    def pre(self) -> str | None:
        """What splits the words of the vocabulary, which is cut, so that it has to be told."""
        return vocabularies.CUTS[self.vocabulary].pre or None


@cache
def recorded(name: str) -> Recorded:
    found = json.loads((FOLDER / f"{name}.json").read_text())
    del found["llama.cpp"]
    return Recorded(**found)


def remake(name: str, folder: Path) -> Path:
    """Write a model's directory, the same bytes as the converter saw; its name is to be `hf`."""
    found = recorded(name)
    files = {**vocabularies.files(vocabularies.CUTS[found.vocabulary]), **found.files}
    tiny_files.write(folder, files, found.stored, found.n_shards)
    for file, expected in found.digests.items():
        assert digest((folder / file).read_bytes()) == expected, f"{name}/{file}"
    return folder


def through_gguf(name: str, folder: Path, to: str = "gguf-f32") -> Path:
    """Write a model's directory `hf`, `there.gguf` of that, and `back` of that, in float32.

    Returns the first.
    """
    root = remake(name, folder / "hf")
    an.convert(root, folder / "there.gguf", to, tokenizer_pre=recorded(name).pre)
    an.convert(folder / "there.gguf", f"{folder / 'back'}/", "f32")
    return root


def digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def described(path: Path) -> dict[str, dict[str, Any]]:
    """Return `keys` and `tensors` of a GGUF file as they are recorded."""
    read = gguf.GGUFReader(path)
    keys = {n: _value(field) for n, field in read.fields.items() if not n.startswith("GGUF.")}
    tensors = {
        t.name: [t.tensor_type.name, [int(n) for n in t.shape[::-1]], digest(t.data.tobytes())]
        for t in read.tensors
    }
    return {"keys": keys, "tensors": tensors}


def _value(field: gguf.ReaderField) -> dict[str, Any]:
    found: dict[str, Any] = {"type": field.types[0].name.lower()}
    content = field.contents()
    if field.types[0] == gguf.GGUFValueType.ARRAY:
        found["of"] = field.types[-1].name.lower()
        if len(content) > _LONGEST:
            raw = json.dumps(content, ensure_ascii=False).encode()
            return {**found, "length": len(content), "sha256": digest(raw)}
    return {**found, "value": content}
