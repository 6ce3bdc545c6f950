"""No part of a layout passes for a weight: the table of names knows them all."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import pytest

from anamnesis import schemes
from anamnesis.base.dtypes import BLOCK_DTYPES, DTYPES
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.claim.names import is_auxiliary
from anamnesis.schemes.core.layout import Field
from anamnesis.sources.memory import BufferSource

WEIGHT = "model.layers.0.mlp.up_proj.weight"
NOWHERE = BufferSource(memoryview(b""), "nowhere")
# GGUF's second scales: in its files, names say nothing. VPTQ's residuals are found with the rest.
LEFT = {"{module}scale", "{module}res_indices"}


def layouts() -> Iterator[tuple[str, tuple[Field, ...]]]:
    """All that modules of layouts name: of each, the parts of one weight."""
    for module in pkgutil.walk_packages(schemes.__path__, "anamnesis.schemes."):
        if ".layouts" not in module.name:
            continue
        for value in vars(importlib.import_module(module.name)).values():
            of_several = list(value.values()) if isinstance(value, dict) else value
            several = of_several if isinstance(of_several, (list, tuple)) else [value]
            for layout in several:
                for fields in (getattr(layout, "fields", ()), getattr(layout, "bare", ())):
                    if isinstance(fields, tuple) and fields:
                        yield module.name, fields


WAYS = sorted(set(layouts()), key=repr)


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
    families = {module.split(".")[2] for module, _ in WAYS}
    assert families >= {"fp4", "fp6", "fp8", "bnb"}
