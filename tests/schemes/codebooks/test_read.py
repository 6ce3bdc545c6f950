"""AQLM and VPTQ made by hand: small, and what is wrong with their parts."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from anamnesis.schemes.families.codebooks import weight as codebooks
from helpers.codebook_cases import (
    AQLM,
    AQLM_VALUES,
    LAYER,
    VPTQ,
    VPTQ_VALUES,
    Tensors,
    halves,
    shorts,
)
from helpers.handmade import Entry, write_safetensors


def opened(folder: Path, tensors: Tensors, layer: Any = LAYER) -> an.Model:
    write_safetensors(folder / "model.safetensors", tensors)
    section = {"quant_method": "vptq", "config_for_layers": {"a": layer}}
    (folder / "config.json").write_text(json.dumps({"quantization_config": section}))
    return an.parse(folder)


def test_aqlm(tmp_path: Path) -> None:
    with opened(tmp_path, AQLM) as model:
        assert model["a.weight"].scheme == "AQLM, 2 codebooks of 2 bits, groups of 2"
        assert model["a.weight"].numpy("f32").tolist() == AQLM_VALUES
        assert model["a.weight"][1:, 1:3].tolist() == [[-15, -22]]


def test_vptq(tmp_path: Path) -> None:
    with opened(tmp_path, VPTQ) as model:
        assert model["a.weight"].scheme == "VPTQ, vectors of 2, 3 centroids"
        assert model["a.weight"].numpy("f32").tolist() == VPTQ_VALUES
        model.remember(tmp_path.parent / f"{tmp_path.name}-out")


def test_vptq_in_words_with_a_correction(tmp_path: Path) -> None:
    """Two bits of the index, then one of the correction, for each of four columns."""
    places = zip((0, 1, 2, 1), (1, 0, 0, 1), strict=True)
    bits = sum((index | more << 2) << 3 * i for i, (index, more) in enumerate(places))
    tensors = {
        "a.indices": ("I32", (1, 2, 1), struct.pack("<II", bits, 0)),
        "a.centroids.weight": VPTQ["a.centroids.weight"],
        "a.res_centroids.weight": halves(0, 0, 0.25, 0.5, shape=(1, 4)),
    }
    with opened(tmp_path, tensors) as model:
        assert model["a.weight"].scheme == "VPTQ, vectors of 2, 3 centroids and 2"
        want = [[1.25, 3, 5, 3.25], [2.5, 4, 6, 4.5], [1, 1, 1, 1]]
        assert np.asarray(model["a.weight"].numpy("f32")).tolist() == want


# What is changed or taken away, and what the error says.
WRONG: dict[str, tuple[Tensors, dict[str, Entry | None], str]] = {
    "AQLM without codebooks": (AQLM, {"a.codebooks": None}, "a.codes|a.scales"),
    "AQLM without scales": (AQLM, {"a.scales": None}, "a.codes .* has a.codebooks, but no"),
    "AQLM and a weight": (
        AQLM,
        {"a.weight": halves(1, shape=(1,))},
        "there is another tensor of that name",
    ),
    "three entries": (
        AQLM,
        {"a.codebooks": halves(*range(12), shape=(2, 3, 1, 2))},
        r"a.codebooks is F16 \[2, 3, 1, 2\]; a power of two",
    ),
    "codes of other codebooks": (
        AQLM,
        {"a.codes": ("I8", (2, 4, 1), bytes(8))},
        r"a.codes is I8 \[2, 4, 1\]; integers of 2 bits \[out groups, in groups, 2\]",
    ),
    "codes of too few bits": (
        AQLM,
        {"a.codebooks": halves(*[0] * 2048, shape=(2, 512, 1, 2))},
        "integers of 9 bits",
    ),
    "scales of other rows": (AQLM, {"a.scales": halves(1, shape=(1, 1, 1, 1))}, r"\[2, 1, 1, 1\]"),
    "centroids of other vectors": (
        VPTQ,
        {"a.centroids.weight": halves(*range(5), shape=(1, 5))},
        r"\[1, entries \* 2\]",
    ),
    "indices of other rows": (
        VPTQ,
        {"a.indices": shorts(*[0] * 12, shape=(1, 3, 4))},
        r"I32 \[1, 2, 1\] or I16 \[1, 2, 4\] is expected",
    ),
    "words for one centroid": (
        VPTQ,
        {
            "a.indices": ("I32", (1, 2, 0), b""),
            "a.centroids.weight": halves(1, 2, shape=(1, 2)),
        },
        r"a.indices is I32 \[1, 2, 0\]; I16 \[1, 2, 4\] is expected",
    ),
    "an index alone": (
        VPTQ,
        {"a.indices": ("I32", (), bytes(4))},
        r"a.indices is I32 \[\]; \[groups, vectors, words\] is expected",
    ),
    "a permutation of other columns": (VPTQ, {"a.perm": shorts(0, 1, shape=(2,))}, r"I64 \[4\]"),
    "outliers": (VPTQ, {"a.outlier_indices": shorts(0, shape=(1,))}, "VPTQ with outliers"),
    "an index of no centroid": (
        VPTQ,
        {"a.indices": shorts(0, 1, 2, 1, 2, 3, 0, 0, shape=(1, 2, 4))},
        "a.indices: vector 1 of column 1 is number 3 of 3 in a.centroids.weight",
    ),
    "no permutation": (
        VPTQ,
        {"a.perm": shorts(1, 0, 3, 3, shape=(4,))},
        "a.perm: no permutation of 4 columns, 2 is missing",
    ),
    "a column behind the last": (VPTQ, {"a.perm": shorts(1, 0, 3, -2, shape=(4,))}, "2 is missing"),
}


@pytest.mark.parametrize("case", WRONG)
def test_is_refused(case: str, tmp_path: Path) -> None:
    tensors, changes, message = WRONG[case]
    kept = {k: v for k, v in {**tensors, **changes}.items() if v is not None}
    with opened(tmp_path, kept) as model, pytest.raises(an.AnamnesisError, match=message) as caught:
        model.remember_to_bytes()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("layer", [None, {}, {**LAYER, "vector_lens": [0, -2]}, {"in_features": 4}])
def test_a_layer_that_no_config_tells_of(layer: Any, tmp_path: Path) -> None:
    with (
        opened(tmp_path, VPTQ, layer) as model,
        pytest.raises(an.UnsupportedError, match="how long VPTQ's vectors are"),
    ):
        model.remember_to_bytes()


def test_codebooks_that_are_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codebooks, "CODEBOOKS_MAX_BYTES", 31)
    with (
        opened(tmp_path, AQLM) as model,
        pytest.raises(an.LimitExceeded, match=r"a\.codebooks: codebooks of 32 bytes"),
    ):
        model.remember_to_bytes()
