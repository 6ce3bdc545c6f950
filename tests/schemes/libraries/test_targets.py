"""A name means one module, or none."""

from __future__ import annotations

import pytest

from anamnesis.schemes.libraries.targets import Targets, common_end, match_names

MODULES = {"model.layers.0.up", "model.layers.1.up", "mtp.layers.2.up", "lm_head", "a.b.c", "d.b.c"}


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("model.layers.0.up", "model.layers.0.up"),
        ("model.layers.0.up.weight", "model.layers.0.up"),
        ("layers.0.up", "model.layers.0.up"),
        ("language_model.model.layers.0.up", "model.layers.0.up"),
        ("model.language_model.layers.0.up", "model.layers.0.up"),
        ("model.diffusion_model.model.layers.0.up", "model.layers.0.up"),
        ("layers.2.up", "mtp.layers.2.up"),
        ("model.language_model.lm_head", "lm_head"),
        ("outer.a.b.c", "a.b.c"),
        ("b.c", None),
        ("up", None),
        ("layers.3.up", None),
        ("vision.layers.0.up", None),
        ("ayers.0.up", None),
    ],
)
def test_what_a_name_means(name: str, module: str | None) -> None:
    hits, missed = match_names({name: 1}, MODULES)
    assert (hits, missed) == (({module: 1}, ()) if module else ({}, (name,)))


def test_its_own_name_comes_first() -> None:
    said = {"layers.0.up": 1, "model.layers.0.up": 2, "": 3}
    assert match_names(said, MODULES) == ({"": 3, "model.layers.0.up": 2}, ())


def test_two_names_of_one_module() -> None:
    same = {"layers.0.up": 1, "language_model.layers.0.up": 1}
    assert match_names(same, MODULES) == ({"model.layers.0.up": 1}, ())
    other = {"layers.0.up": 1, "language_model.layers.0.up": 2}
    assert match_names(other, MODULES) == ({}, tuple(other))


def test_how_much_of_two_names_is_alike() -> None:
    assert common_end("a.b.c.weight", "x.b.c") == 2
    assert common_end("b.c", "a.b.c") == 2
    assert common_end("a", "b") == 0


def test_targets_of_a_config() -> None:
    said = [("model.language_model.layers.0.up", 1), ("Linear", 2), ("layers.7.up", 3), ("", 4)]
    targets = Targets(said, MODULES)
    assert targets.of("model.layers.0.up") == [1]
    assert targets.of("model.layers.1.up") == [2, 4, 3]
