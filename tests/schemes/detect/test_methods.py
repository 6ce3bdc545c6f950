"""The methods that programs know: what the table says of them, and what lists of new ones show."""

from __future__ import annotations

from pathlib import Path

import pytest

import anamnesis as an
from anamnesis.schemes.core.layout import Layers
from anamnesis.schemes.detect.unread import known
from anamnesis.schemes.encodings import ENCODINGS, made
from anamnesis.schemes.libraries.config import _ALGOS
from helpers.claims import Tensors, described, empty
from helpers.kernel_calls import load_by_path

M = "model.layers.0.mlp.up_proj"
STATES = {"written", "read", "refused", "runtime"}
ROWS = known()
# Codes of 8 bits with a scale for each row: what they are without a method that is known is open.
BYTES: Tensors = {f"{M}.weight": empty("I8", 8, 64), f"{M}.weight_scale": empty("F32", 8, 1)}


def test_rows_are_whole() -> None:
    assert {row.state for row in ROWS} == STATES
    assert all(row.words for row in ROWS if row.state != "runtime")
    names = [(row.name, row.programs) for row in ROWS]
    assert len(names) == len(set(names))
    algorithms = {row.name for row in ROWS if row.programs == "ModelOpt"}
    assert algorithms == {*_ALGOS, "MIXED_PRECISION"}


@pytest.mark.parametrize(
    "method", [row.name for row in ROWS if row.state == "refused" and row.name.islower()]
)
def test_what_is_refused_is_named(method: str, tmp_path: Path) -> None:
    config = {"model_type": "llama", "quantization_config": {"quant_method": method}}
    with (
        an.parse(described(tmp_path / "a.safetensors", config, BYTES).parent) as model,
        pytest.raises(an.UnsupportedError, match=method),
    ):
        model.remember(lambda *_: None)


def test_what_outputs_declare_is_called_written() -> None:
    declared = [made(row).layout.declare(Layers([M], [M])) for row in ENCODINGS.values()]
    methods = {config["quant_method"] for config in declared if "quant_method" in config}
    written = {row.name.partition("_")[0] for row in ROWS if row.state == "written"}
    assert methods <= written


SOURCES = {
    'NAMES = {"a": 1, "b": "c"}': {"a", "b"},
    'NAMES: dict[str, int] = {"a": 1}': {"a"},
    'if x:\n    NAMES.update({"a": A})': {"a"},
    'NAMES = Literal["a", "b"]': {"a", "b"},
    'class NAMES(Enum):\n    a = "a"\n    b = "b-c"': {"a", "b-c"},
    'NAMES = config["a"]\nif NAMES == "b":\n    pass\nelif NAMES in ("c", "d"):\n    pass': set(
        "bcd"
    ),
    'OTHERS = {"a": 1}': set(),
}


@pytest.mark.parametrize("source", SOURCES)
def test_lists_in_sources(source: str) -> None:
    tool = load_by_path("tools/methods.py")
    assert tool.names_in(source, ("NAMES",)) == SOURCES[source]


def test_what_differs_is_named() -> None:
    tool = load_by_path("tools/methods.py")
    names = {row.name for row in ROWS if "mlx-lm" in row.programs.split(", ")}
    assert tool.differences("mlx-lm", names) == []
    changed = (names - {"awq"}) | {"a_new_one"}
    assert tool.differences("mlx-lm", changed) == [
        "mlx-lm has 'a_new_one', which no row of unread.json gives it",
        "mlx-lm no longer has 'awq'",
    ]
    assert {program for row in ROWS for program in row.programs.split(", ")} >= set(tool.LISTS)
