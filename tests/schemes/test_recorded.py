"""What libraries decode that are not installed for tests: kept by tools/record_decoders.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from anamnesis.base.levels import supported_levels
from helpers.handmade import write_safetensors
from helpers.recorded import RECORDED, read

CASES = [
    pytest.param(path, case, marks=pytest.mark.against(told["library"]), id=f"{path.stem}-{case}")
    for path in sorted(RECORDED.glob("*.safetensors"))
    for told, _ in [read(path)]
    for case in told
    if case != "library"
]


def quiet(raw: bytes) -> bytes:
    values = np.frombuffer(raw, "<f4").copy()
    values[np.isnan(values)] = np.nan
    return values.tobytes()


@pytest.mark.parametrize(("path", "case"), CASES)
def test_values(path: Path, case: str, tmp_path: Path) -> None:
    told, tensors = read(path)
    config: dict[str, Any] = json.loads(told[case])
    stored = f"{case}/stored/"
    parts = {f"a.{k.removeprefix(stored)}": v for k, v in tensors.items() if k.startswith(stored)}
    (tmp_path / "config.json").write_text(json.dumps(config))
    write_safetensors(tmp_path / "model.safetensors", parts)
    with an.parse(tmp_path) as model:
        assert not model.problems
        for name, (_, shape, raw) in tensors.items():
            if name.startswith(f"{case}/") and not name.startswith(stored):
                tensor = model[f"a.{name.removeprefix(f'{case}/')}"]
                assert tensor.shape == shape
                for level in supported_levels():
                    assert tensor.numpy("f32", level=level).tobytes() == quiet(raw), level
