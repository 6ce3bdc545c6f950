"""What parts are to their weights: told by name, for every scheme that reads them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

import anamnesis as an
from anamnesis.cli.app import cli
from anamnesis.schemes.core.roles import roles
from anamnesis.schemes.encodings import ENCODINGS
from helpers.handmade import Entry, WriteModel

GPTQ: dict[str, Entry] = {
    "q_proj.qweight": ("I32", (16, 8), bytes(512)),
    "q_proj.qzeros": ("I32", (1, 1), bytes(4)),
    "q_proj.scales": ("F16", (1, 8), bytes(16)),
    "q_proj.g_idx": ("I32", (128,), bytes(512)),
}


def test_gptq_is_told_by_role(write_model: WriteModel) -> None:
    path = write_model(GPTQ)
    with an.parse(path) as model:
        inspection = model.inspect()
    assert inspection.roles == {
        "codes": {"I32": 1},
        "scales": {"F16": 1},
        "zero points": {"I32": 1},
        "group indices": {"I32": 1},
    }
    assert "1 tensor (weights) + " in str(inspection)
    for told in ("1 scale (F16)", "1 zero point (I32)", "1 group index (I32)"):
        assert told in str(inspection)
    assert max(map(len, str(inspection).splitlines())) <= 80
    listed = json.loads(CliRunner().invoke(cli, ["parse", str(path), "--schemes", "--json"]).stdout)
    (weight,) = listed["weights"]
    assert dict(zip(weight["stored"], weight["roles"], strict=True)) == {
        "q_proj.qweight": "codes",
        "q_proj.qzeros": "zero points",
        "q_proj.scales": "scales",
        "q_proj.g_idx": "group indices",
    }


@pytest.mark.parametrize("name", [name for name in ENCODINGS if name != "gptoss-mxfp4"])
def test_no_part_of_what_is_written_is_without_a_role(name: str, write_model: WriteModel) -> None:
    values = np.random.default_rng(1).normal(size=(256, 256)).astype(np.float16).tobytes()
    path = write_model(
        {"layers.0.q_proj.weight": ("F16", (256, 256), values)}, name="a/model.safetensors"
    )
    (path.parent / "config.json").write_text('{"torch_dtype": "float16"}')
    with an.parse(path.parent) as model:
        model.forget(path.parent.with_name("out"), name)
    with an.parse(path.parent.with_name("out")) as model:
        weights = list(model._ledger.weights.values())
        assert weights[0].own_dtype is None
        for weight in weights:
            told = roles(weight)
            assert told[0] == "codes"
            assert "others" not in told, list(zip(told, weight.parts, strict=True))
