"""The parsers' fuzzers as a regression test, on their corpus and a few hundred random inputs."""

from __future__ import annotations

import random
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

FUZZERS = (
    *("fuzz_safetensors", "fuzz_safetensors_limits", "fuzz_checkpoint"),
    *("fuzz_gguf", "fuzz_gguf_limits", "fuzz_schemes"),
    *("fuzz_zip", "fuzz_zip_limits", "fuzz_npz", "fuzz_npz_limits"),
    *("fuzz_pickle", "fuzz_pickle_limits", "fuzz_pth", "fuzz_pth_limits"),
    *("fuzz_write_safetensors", "fuzz_write_gguf", "fuzz_write_npz", "fuzz_write_pth"),
    "fuzz_scan",
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


@pytest.mark.parametrize(("fuzzer", "seed"), SEEDS)
def test_corpus(fuzzer: str, seed: str) -> None:
    import_module(fuzzer).check((CORPUS / fuzzer / seed).read_bytes())


@pytest.mark.parametrize("fuzzer", [pytest.param(f, marks=marks(f)) for f in FUZZERS])
def test_random_inputs(fuzzer: str) -> None:
    random.seed(fuzzer)
    check = import_module(fuzzer).check
    limits = b"\x30\x38\x10" if fuzzer.endswith("_limits") else b""
    if fuzzer.startswith(("fuzz_zip", "fuzz_npz")):
        limits += limits[-1:]  # of the decompression ratio
    prefix = b"" if fuzzer == "fuzz_checkpoint" else limits + b"S"
    for _ in range(300):
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


def test_seeds_of_schemes_are_read() -> None:
    """All families and both outcomes are among them."""
    structured = import_module("structured_schemes")
    read = [
        import_module("exercise").exercise(structured.quantised_file(structured.Choices(seed)))
        for seed in (path.read_bytes() for path in (CORPUS / "fuzz_schemes").iterdir())
    ]
    families = {
        w.family for model in read if model is not None for w in model._claim.weights.values()
    }
    assert {"NF4", "FP4", "INT8", "GPTQ", "AWQ", "INT3"} <= families
    assert any(model.problems for model in read if model is not None)
