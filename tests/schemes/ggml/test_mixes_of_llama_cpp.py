"""The mixes of llama-quantize on twelve models, beside llama.cpp's own records of types.

`python tests/schemes/ggml/test_mixes_of_llama_cpp.py` keeps digests of it for the fast tests.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from anamnesis.schemes.families.ggml.choose import choose
from anamnesis.schemes.families.ggml.mixes import MIXES

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
sys.path.insert(0, str(Path(__file__).parents[2]))

import ggml_c

from helpers import mix_records

NOT_IN_THEM = {"q1_0", "q2_0"}


def schemas() -> dict[str, Path]:
    folder = ggml_c.llama_cpp() / "tests" / "snapshots"
    return {path.stem: path for path in sorted(folder.glob("*.schema"))}


@pytest.mark.parametrize("name", mix_records.MODELS)
def test_each_tensor_gets_the_type_of_llama_cpps_own_record(name: str) -> None:
    facts, tensors, types = mix_records.read(schemas()[name])
    assert set(MIXES) - set(types) == NOT_IN_THEM
    for mix in types:
        chosen = choose(tensors, facts, mix)
        assert {name: one.type for name, one in chosen.items()} == types[mix], mix


def test_all_of_its_models_are_compared() -> None:
    assert set(schemas()) == set(mix_records.MODELS)


@pytest.mark.parametrize("name", mix_records.MODELS)
def test_the_fast_tests_read_the_same(name: str) -> None:
    record = mix_records.read(schemas()[name])
    told = json.loads(json.dumps(mix_records.as_json(record)))
    assert mix_records.recorded()[name] == told
    assert mix_records.from_json(told)[:2] == record[:2]


def record() -> None:
    found = {name: mix_records.as_json(mix_records.read(path)) for name, path in schemas().items()}
    mix_records.RECORDED.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    record()
