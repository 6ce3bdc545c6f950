"""The parsers' fuzzers as a regression test, on their corpus and a hundred random inputs."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import anamnesis as an
from anamnesis.schemes.core.plain import Plain

FUZZERS = (
    *("fuzz_safetensors", "fuzz_safetensors_limits", "fuzz_checkpoint"),
    *("fuzz_gguf", "fuzz_gguf_limits", "fuzz_schemes"),
    *("fuzz_zip", "fuzz_zip_limits", "fuzz_npz", "fuzz_npz_limits"),
    *("fuzz_pickle", "fuzz_pickle_limits", "fuzz_pth", "fuzz_pth_limits"),
    *("fuzz_write_safetensors", "fuzz_write_gguf", "fuzz_write_npz", "fuzz_write_pth"),
    *("fuzz_scan", "fuzz_imatrix", "fuzz_tokenizer_model", "fuzz_tokenizer_json"),
    *("fuzz_hf_config", "fuzz_models"),
)
CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus"


ASK_OTHERS = {"fuzz_scan"}  # programs that are oracles


def marks(fuzzer: str) -> Any:
    return pytest.mark.oracle if fuzzer in ASK_OTHERS else ()


SEEDS = [
    pytest.param(fuzzer, path.name, marks=marks(fuzzer))
    for fuzzer in FUZZERS
    for path in sorted((CORPUS / fuzzer).iterdir())
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("fuzzer", "seed"), SEEDS)
def test_corpus(fuzzer: str, seed: str) -> None:
    import_module(fuzzer).check((CORPUS / fuzzer / seed).read_bytes())


@pytest.mark.sampled(4)
@pytest.mark.parametrize("fuzzer", [pytest.param(f, marks=marks(f)) for f in FUZZERS])
def test_random_inputs(fuzzer: str) -> None:
    random.seed(fuzzer)
    check = import_module(fuzzer).check
    is_limited = fuzzer.endswith("_limits") or fuzzer in ("fuzz_imatrix", "fuzz_tokenizer_model")
    limits = b"\x30\x38\x10" if is_limited else b""
    if fuzzer.startswith(("fuzz_zip", "fuzz_npz")):
        limits += limits[-1:]  # of the decompression ratio
    prefix = b"" if fuzzer == "fuzz_checkpoint" else limits + b"S"
    for _ in range(100):
        check(prefix + random.randbytes(random.choice((20, 60, 200, 400))))


def test_structured_seeds_are_read() -> None:
    """The corpus must get behind the header, else it proves nothing."""
    fuzz = import_module("fuzz_safetensors")
    read = {
        path.name: fuzz.exercise(fuzz.file_from(path.read_bytes()))
        for path in (CORPUS / "fuzz_safetensors").iterdir()
    }
    assert [name for name, model in read.items() if model is None] == []
    schemes = {s for model in read.values() if model is not None for s in model.inspect().schemes}
    assert len(schemes) >= 5


def test_seeds_of_schemes_are_read(tmp_path: Path) -> None:
    """There is one of each builder, and both outcomes are among them."""
    builders, choices = import_module("structured_schemes"), import_module("structured").Choices
    seeds = {path.name: path.read_bytes() for path in (CORPUS / "fuzz_schemes").iterdir()}
    built = {f"{f.__module__}-{f.__name__}".replace("_", "-") for f in builders.FAMILIES}
    assert {name.removeprefix("structured-") for name in built} <= seeds.keys()
    are_whole = set()
    for name, seed in seeds.items():
        raw, config = builders.checkpoint(choices(seed))
        (tmp_path / "config.json").write_text(json.dumps(config or {}))
        (tmp_path / "model.safetensors").write_bytes(raw)
        with suppress(an.AnamnesisError), an.parse(raw if config is None else tmp_path) as model:
            is_whole = not model.problems
            assert is_whole or name.endswith("spoiled"), name
            assert any(type(w) is not Plain for w in model._ledger.weights.values()) or not is_whole
            are_whole.add(is_whole)
    assert are_whole == {True, False}


def test_seeds_of_importance_are_read() -> None:
    fuzz = import_module("fuzz_imatrix")
    seeds = (CORPUS / "fuzz_imatrix").iterdir()
    found = [an.read_imatrix(fuzz.file_from(path.read_bytes()[3:])) for path in seeds]
    assert {one.kind for one in found} == {"gguf", "dat"}
    assert max(len(entry.counts) for one in found for entry in one.entries.values()) > 1


def test_seeds_of_configs_are_read() -> None:
    fuzz = import_module("fuzz_hf_config")
    seeds = [path.read_bytes() for path in (CORPUS / "fuzz_hf_config").iterdir()]
    assert all(fuzz.was_read(seed) for seed in seeds)


def test_seeds_of_tokenizers_are_read() -> None:
    """Each kind reads one of them, and what a tokenizer.model holds is among them."""
    fuzz, pieces = import_module("fuzz_tokenizer_json"), import_module("fuzz_tokenizer_model")
    seeds = [path.read_bytes() for path in (CORPUS / "fuzz_tokenizer_json").iterdir()]
    read = {kind for seed in seeds for kind in fuzz.kinds_read(seed)}
    assert read == set(fuzz.KINDS)
    models = (path.read_bytes() for path in (CORPUS / "fuzz_tokenizer_model").iterdir())
    assert all(pieces.read(pieces.file_from(data[3:])) is not None for data in models)
