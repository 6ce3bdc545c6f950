"""Big vocabularies are read and written in whole lists: what comes out is what one by one gives."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from anamnesis.architectures.tokenizers import folder, vocabulary_files
from anamnesis.architectures.tokenizers.bodies import Rows, json_text, quoted
from anamnesis.architectures.tokenizers.merges import cut_merges
from anamnesis.architectures.tokenizers.sentencepiece import parse_model
from anamnesis.base.limits import Budget
from anamnesis.checkpoint.json_file import read_json
from anamnesis.cli.app import main
from anamnesis.formats.gguf.metadata import GgufMetadata
from anamnesis.formats.gguf.strings import Strings
from anamnesis.formats.gguf.values import packed_array
from anamnesis.formats.gguf.write import GgufWriter
from helpers.gguf_handmade import Array, gguf_bytes
from helpers.recorded_hf import remake
from helpers.tokenizer_dirs import model_file

MANY = 10_000  # more than are taken at a time
MODEL = {"type": "BPE", "vocab": {"]": 0}, "merges": [], "z": [["["]]}


MERGES: dict[str, list[Any]] = {
    "pairs": [["a", "b"], ["ab", "c"]],
    "texts": ["a b", "ab c"],
    "of both kinds": ["a b", ["ab", "c"]],
    "brackets and quotes": [['"', "],["], ["\\", '\\"],["'], ["\n", "\t]"]],
    "spaces": [[" ", " a"], ["  ", "\u0120"]],
    "not of ASCII": [["\u2581", "\u00e9"], ["\U0001f600", "\u2028"]],
    "many pairs": [[f"{i}", "],"] for i in range(MANY)],
    "many texts": [f'{i} "' for i in range(MANY)],
}


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("ascii", [False, True])
@pytest.mark.parametrize("name", MERGES)
def test_merges_are_cut_out(name: str, ascii: bool, indent: int | None) -> None:
    told = {"version": 1, "model": {**MODEL, "merges": MERGES[name]}}
    rest, merges = cut_merges(json.dumps(told, ensure_ascii=ascii, indent=indent).encode())
    assert json.loads(rest) == {"version": 1, "model": MODEL}
    assert merges == [
        merge if isinstance(merge, str) else " ".join(half.replace(" ", "\u0120") for half in merge)
        for merge in MERGES[name]
    ]


@pytest.mark.parametrize(
    "merges",
    [
        *('[["a"]]', '[["a", "b", "c"]]', '["a b"', '[["a", 1]]', '["\\ud800 a"]', '["\\x a"]'),
        *("[]", '["a\nb"]', '["a b",]', '[{"a": 1}]', '["a b"], "merges": ["c d"]'),
    ],
)
def test_other_merges_are_left_to_who_can_say_what_is_wrong(merges: str) -> None:
    raw = b'{"merges": %b}' % merges.encode()
    assert cut_merges(raw) == (raw, None)


def test_pieces_spelt_in_other_ways_are_the_same() -> None:
    """As sentencepiece writes them, in another order, and with a text that is long."""
    pieces = [(f"p{i}", -float(i), 1 + (i % 6)) for i in range(MANY)]
    usual = parse_model(model_file(pieces), "x", Budget()).pieces
    other = b"".join(
        b"\x0a%c\x18%c%b" % (len(body) + 2, kind, body)
        for text, score, kind in pieces
        for body in [model_file([(text, score, 1)])[2 : 2 + 7 + len(text)]]
    )
    for found in (usual, parse_model(other, "x", Budget()).pieces):
        assert list(zip(*(list(column) for column in found), strict=True)) == pieces
    long = [("a", 0.0, 1), ("b" * 200, -1.5, 4), ("\u2581" * 50, 2.0, 1), ("c", 3.0, 6)]
    texts, scores, types = parse_model(model_file(long), "x", Budget()).pieces
    assert list(zip(texts, scores, types, strict=True)) == long


@pytest.mark.parametrize("limits", [{"max_item_count": 5000}, {"max_total_bytes": 1_200_000}])
def test_limits_hold_among_many_pieces(limits: dict[str, int]) -> None:
    raw = model_file([("a", 0.0, 1)] * MANY)
    with pytest.raises(an.LimitExceeded, match=next(iter(limits))):
        parse_model(raw, "x", Budget(an.ParseLimits(**limits)))


@pytest.mark.parametrize("n", [0, 1, 2, MANY])
def test_json_is_as_the_standard_library_indents_it(n: int) -> None:
    ids = {f'"\u2581{i}\n': i for i in range(n)}
    pairs = [(text, i / 3) for text, i in ids.items()]
    rest = {"empty": {}, "none": [], "list": [{"a\n": [1, "\u00e9"]}, None], "\u00e9": True}
    as_rows = {
        "model": {
            "vocab": Rows("{}", ((quoted(text), i) for text, i in ids.items())),
            "scored": Rows("[]", ((quoted(text), score) for text, score in pairs)),
            **rest,
        }
    }
    plain = {"model": {"vocab": ids, "scored": pairs, **rest}}
    assert "".join(json_text(as_rows)) == json.dumps(plain, indent=2, ensure_ascii=False)


def test_strings_are_one_buffer() -> None:
    texts = ["", "a", "\u2581b", "\U0001f600"] * MANY
    found = Strings(texts)
    assert len(found) == len(texts)
    assert found == texts
    assert found == Strings(texts)
    assert found != [*texts[:-1], "c"]
    with pytest.raises(UnicodeEncodeError):
        Strings(["a", "\ud800"])


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("big", [False, True])
def test_arrays_of_each_form_are_packed_alike(version: int, big: bool) -> None:
    """And the model keeps no list of them."""
    arrays: dict[str, tuple[int, list[Any]]] = {
        "texts": (8, ["a", "", "\u2581b"]),
        "numbers": (5, [1, -2, 3]),
        "floats": (6, [0.5]),
    }
    values = {key: (9, Array(kind, items)) for key, (kind, items) in arrays.items()}
    with an.parse(gguf_bytes(values, {}, version=version, big=big)) as model:
        for key, (_, items) in arrays.items():
            assert packed_array(model.metadata, key).tolist() == items
        assert isinstance(model.metadata, GgufMetadata)
        assert not model.metadata._read


def test_scores_beyond_float32_are_refused() -> None:
    keys = {"model": "llama", "tokens": ["<unk>", "a"], "token_type": [2, 1], "scores": [0, 1e39]}
    with pytest.raises(an.ParseError, match="no finite number of float32"):
        vocabulary_files({f"tokenizer.ggml.{name}": told for name, told in keys.items()})


# --- once for a command ---------------------------------------------------------------------------


@pytest.mark.parametrize("args", [("plan", "--to", "gguf", "--to", "gguf-q8_0"), ("convert",)])
def test_a_tokenizer_is_read_once(
    args: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, seen = remake("llama_llama3", tmp_path / "hf"), list[str]()

    def read(path: Path, *args: Any, **options: Any) -> dict[str, Any]:
        seen.append(path.name)
        return read_json(path, *args, **options)

    monkeypatch.setattr(folder, "read_json", read)
    verb, *more = args
    out = () if verb == "plan" else ("--to", "gguf", "-o", str(tmp_path / "a.gguf"))
    with pytest.raises(SystemExit) as left:
        main([verb, str(root), *more, *out, "--tokenizer-pre", "llama-bpe"])
    assert left.value.code in (0, None)
    assert sorted(seen) == ["tokenizer.json", "tokenizer_config.json"]


def test_a_tokenizer_that_changes_is_read_again(tmp_path: Path) -> None:
    root = remake("llama_llama3", tmp_path / "hf")
    with an.parse(root) as model:
        model.convert(tmp_path / "a.gguf", "gguf", tokenizer_pre="llama-bpe")
        (root / "chat_template.jinja").write_text("{{ new }}")
        told = json.loads((root / "tokenizer_config.json").read_text())
        told.pop("chat_template", None)
        (root / "tokenizer_config.json").write_text(json.dumps(told))
        model.convert(tmp_path / "b.gguf", "gguf", tokenizer_pre="llama-bpe")
    with an.parse(tmp_path / "b.gguf") as again:
        assert again.metadata["tokenizer.chat_template"] == "{{ new }}"


# --- memory ---------------------------------------------------------------------------------------

PEAK = """
import sys
import numpy
import anamnesis as an
from anamnesis.architectures.tokenizers import vocabulary_files

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

before = peak()
with an.parse(sys.argv[1]) as model:
    n = len(vocabulary_files(model.metadata)["tokenizer.json"])
print(peak() - before, n)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("kind", ["gemma4", "llama"])
def test_the_way_back_of_a_big_vocabulary_takes_little_memory(kind: str, tmp_path: Path) -> None:
    """A vocabulary of Gemma's size: tokens of which each is made of two others, in two ways."""
    letters = [chr(0x4E00 + i) for i in range(512)]
    made = [(left, right) for left in letters for right in letters]
    tokens = ["<unk>", *letters, *(left + right for left, right in made[: 262_144 - 513])]
    merges = [f"{left} {right}" for left, right in made] * 2
    keys = {
        "model": kind,
        "tokens": Strings(tokens),
        "scores": -np.arange(len(tokens), dtype=np.float32),
        "token_type": np.ones(len(tokens), np.int32),
        **({"merges": Strings(merges)} if kind == "gemma4" else {}),
    }
    keys = {f"tokenizer.ggml.{name}": value for name, value in keys.items()}
    layout = GgufWriter().lay_out([], {"general.architecture": "gemma3", **keys})
    path = tmp_path / "a.gguf"
    path.write_bytes(layout.fixed[0][1].ljust(layout.n_bytes, b"\0"))
    run = subprocess.run(
        [sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, check=True
    )
    kilobytes, n_bytes = map(int, run.stdout.split())
    assert n_bytes > 15_000_000
    assert kilobytes < 120_000
