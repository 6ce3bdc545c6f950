"""No part of a layout passes for a weight: the table of names knows them all."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from anamnesis.base.dtypes import BLOCK_DTYPES, DTYPES
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.layout import Field
from anamnesis.schemes.detect.not_weights import is_auxiliary
from anamnesis.sources.memory import BufferSource

WEIGHT = "model.layers.0.mlp.up_proj.weight"
NOWHERE = BufferSource(memoryview(b""), "nowhere")
# GGUF's second scales: in its files, names say nothing. VPTQ's residuals are found with the rest.
LEFT = {"{module}scale", "{module}res_indices"}


PART_NAMES = runpy.run_path(str(Path(__file__).parents[3] / "tools" / "part_names.py"))
WAYS: list[tuple[str, tuple[Field, ...]]] = sorted(set(PART_NAMES["fields"]()), key=repr)


def test_the_names_are_those_of_the_layouts_as_they_are() -> None:
    made = PART_NAMES["made"]()
    page: Path = PART_NAMES["PAGE"]
    assert page.read_text(encoding="utf-8") == made, "run: python tools/part_names.py"


def stored(field: Field) -> StoredTensor:
    usual = "F8_E4M3" if field.role == "codes" else "F32"
    dtype = (DTYPES | BLOCK_DTYPES)[(field.dtypes or (usual,))[0]]
    return StoredTensor(field.named(WEIGHT), dtype, (8, 16), 0, 0, NOWHERE)


@pytest.mark.parametrize("fields", [fields for _, fields in WAYS], ids=lambda f: f[-1].name)
def test_parts_beside_codes_are_no_weights(fields: tuple[Field, ...]) -> None:
    parts = {field.named(WEIGHT): stored(field) for field in fields}
    for field in fields:
        if field.role != "codes" and field.name not in LEFT:
            assert is_auxiliary(parts[field.named(WEIGHT)], parts), field


def test_all_families_are_asked() -> None:
    families = {module.split(".")[3] for module, _ in WAYS}
    assert families >= {"fp4", "fp6", "fp8", "bnb"}
