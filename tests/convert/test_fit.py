"""Types for a size: within it, never worse than llama-quantize's mixes, and written as planned."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from anamnesis.convert.fit.allocate import Option, allocate
from anamnesis.convert.request.recipe import recipe_text
from helpers.cli_runs import run

LAYERS = 12
MIXES = ("q2_k", "q3_k_s", "q3_k_m", "q3_k_l", "q4_k_s", "q4_k_m", "q5_k_s", "q5_k_m", "q6_k")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose layers matter more and less."""
    rng = np.random.default_rng(5)
    shapes = {"attn_q": (64, 256), "attn_v": (32, 256), "ffn_down": (64, 512), "ffn_up": (96, 256)}
    arrays: dict[str, Any] = {}
    for layer in range(LAYERS):
        for i, (name, shape) in enumerate(shapes.items()):
            scale = np.float32(0.02 * (1 + (layer * 7 + i * 3) % 11))
            arrays[f"blk.{layer}.{name}.weight"] = rng.standard_t(4, shape).astype("f4") * scale
        arrays[f"blk.{layer}.attn_norm.weight"] = np.ones(256, np.float32)
    arrays["token_embd.weight"] = rng.standard_normal((80, 256)).astype("f4")
    arrays["output.weight"] = rng.standard_normal((80, 256)).astype("f4") / 8
    arrays["ragged.weight"] = rng.standard_normal((4, 100)).astype("f4")
    keys = {"general.architecture": "llama", "llama.block_count": LAYERS}
    made = tmp_path_factory.mktemp("fit") / "model.gguf"
    an.save(arrays, made, metadata=keys)
    return made


def squared(report: an.Report) -> float:
    assert report.loss is not None
    return report.loss.total.squared


@pytest.mark.sampled(9)
@pytest.mark.parametrize("mix", MIXES)
def test_no_mix_of_its_size_has_a_lower_error(mix: str, path: Path, tmp_path: Path) -> None:
    with an.parse(path) as model:
        theirs = model.convert(tmp_path / "mix.gguf", mix)
        size = (tmp_path / "mix.gguf").stat().st_size
        found = model.fit(target_size=size, types=("k", "q4_0", "q5_0", "q5_1"), full=True)
        (tmp_path / "recipe.toml").write_text(found.recipe())
        ours = model.convert(tmp_path / "ours.gguf", **an.read_recipe(tmp_path / "recipe.toml"))
    assert (tmp_path / "ours.gguf").stat().st_size == found.plan.n_bytes <= size
    assert squared(ours) <= squared(theirs)
    assert squared(ours) == pytest.approx(found.error, rel=1e-6)  # float32 sums of other bands
    with an.parse(tmp_path / "ours.gguf") as made:
        assert {name: made.stored[name].dtype.name for name in found.types} == found.types


@pytest.mark.slow
def test_bits_a_weight(path: Path) -> None:
    with an.parse(path) as model:
        errors = []
        for bits in (4.0, 4.5, 5.0, 6.0):
            found = model.fit(target_bpw=bits)
            told = found.plan.bits_per_weight
            assert told is not None
            assert bits - 0.2 < told <= bits
            errors.append(found.error)
        assert errors == sorted(errors, reverse=True)
        with pytest.raises(an.UnsupportedError, match=r"types take 2\.\d+ bits a weight; allow"):
            model.fit(target_bpw=1.0)
        least = model.fit(target_bpw=2.8, most={"*": "q2_k"}).plan.n_bytes
        with pytest.raises(an.UnsupportedError, match=f"types take {least:,} bytes; allow"):
            model.fit(target_size=10_000)
        for wrong in ({}, {"target_bpw": 4.0, "target_size": 1}):
            with pytest.raises(ValueError, match="give one of target_size and target_bpw"):
                model.fit(**wrong)  # type: ignore[arg-type]


def test_bounds(path: Path) -> None:
    with an.parse(path) as model:
        found = model.fit(
            target_bpw=4.5,
            least={"*.attn_v.*": "q5_k"},
            most={"token_embd.weight": "q3_k", "*.ffn_up.*": "q4_k"},
        )
        by_bits = ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q8_0"]
        for name, type in found.types.items():
            rank = by_bits.index(type)
            assert rank >= 3 or ".attn_v." not in name
            assert rank <= 2 or ".ffn_up." not in name
        assert by_bits.index(found.types["token_embd.weight"]) <= 1
        assert "ragged.weight" not in found.types
        with pytest.raises(ValueError, match="least: no weight matches 'x'"):
            model.fit(target_bpw=4.5, least={"x": "q4_k"})
        with pytest.raises(ValueError, match="types: F16 is not a block type"):
            model.fit(target_bpw=4.5, types="f16")
        wrong = {"least": {"*.attn_v.*": "f16"}}, {"least": {"*": "q5_k"}, "most": {"*": "q4_k"}}
        for bounds in wrong:
            with pytest.raises(an.UnsupportedError, match="no type is within its bounds"):
                model.fit(target_bpw=4.5, **bounds)  # type: ignore[arg-type]


def test_a_value_without_a_code_is_named(tmp_path: Path) -> None:
    values = np.ones((8, 256), np.float32)
    values[3, 7] = np.nan
    an.save({"good.weight": np.ones((8, 256), "f4"), "bad.weight": values}, tmp_path / "m.gguf")
    with (
        an.parse(tmp_path / "m.gguf") as model,
        pytest.raises(an.UnsupportedError, match=r"bad\.weight: nan at \[3, 7\], which gguf-q"),
    ):
        model.fit(target_bpw=4.5)


def test_a_journal_is_gone_on_from(path: Path, tmp_path: Path) -> None:
    journal = tmp_path / "errors.jsonl"
    with an.parse(path) as model:
        first = model.fit(target_bpw=4.5, journal=journal)
        lines = journal.read_text().splitlines()
        journal.write_text("\n".join([*lines[:20], lines[20][:9]]))
        again = model.fit(target_bpw=4.5, journal=journal)
        assert again.types == first.types
        told = [json.loads(line) for line in journal.read_text().splitlines() if "weight" in line]
        assert len(told) >= len(lines) - 1
        with pytest.raises(an.OutputError, match="holds errors of another model or"):
            model.fit(target_bpw=4.5, journal=journal, full=True)
    path.touch()  # may have other values
    with an.parse(path) as model:
        with pytest.raises(an.OutputError, match="holds errors of another model or"):
            model.fit(target_bpw=4.5, journal=journal)
        journal.write_text("nothing\n")
        with pytest.raises(an.OutputError, match="line 1: is not a journal of errors"):
            model.fit(target_bpw=4.5, journal=journal)


@pytest.mark.slow
def test_a_recipe_has_all_that_was_asked_for(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with an.parse(path) as model:
        columns = {name: t.shape[-1] for name, t in model.stored.items() if len(t.shape) > 1}
    rng = np.random.default_rng(2)
    importance = {f"{name}.in_sum2": rng.random((1, n), "f4") for name, n in columns.items()}
    importance |= {f"{name}.counts": np.ones((1, 1), np.float32) for name in columns}
    keys = {"imatrix.datasets": ["a.txt"], "imatrix.chunk_count": 1, "imatrix.chunk_size": 512}
    an.save(importance, "imatrix.gguf", metadata=keys)
    asked = (
        *("--target-bpw", "5", "--imatrix", "imatrix.gguf", "--types", "k,iq"),
        *("--output-tensor-type", "q6_k", "--tensor", "blk.0.*=q8_0", "--prune-layers", "7"),
        *("--exclude", "blk.1.attn_q.weight", "--override-kv", "general.name=str:a \U0001f600"),
    )
    told = json.loads(run("plan", path, "--to", "gguf", *asked, "--json").stdout)
    Path("r.toml").write_text(told["recipe"], encoding="utf-8")
    run("convert", path, "--recipe", "r.toml", "-o", "x.gguf")
    assert Path("x.gguf").stat().st_size == told["n_bytes"]
    with an.parse("x.gguf") as made:
        assert made.metadata["general.name"] == "a \U0001f600"
        assert made.metadata["quantize.imatrix.file"] == "imatrix.gguf"
        wanted = {t["name"]: t["dtype"] for t in told["files"][0]["tensors"]}
        assert {name: tensor.dtype.name for name, tensor in made.stored.items()} == wanted
    assert wanted["output.weight"] == "Q6_K"
    assert wanted["blk.0.ffn_up.weight"] == "Q8_0"
    assert wanted["blk.1.attn_q.weight"] == "F32"
    assert f"blk.{LAYERS - 1}.attn_q.weight" not in wanted


@pytest.mark.parametrize(
    ("asked", "said", "code"),
    [
        (("--target-bpw", "4", "--least", "x=q4_k"), "--least: no weight matches 'x'", 1),
        (("--target-bpw", "4", "--types", "q99"), "--types: there is no type 'q99'", 1),
        (("--target-bpw", "nan"), "write a number above 0, such as 4.5, not 'nan'", 2),
        (("--target-bpw", "4", "--target-size", "1MB"), "give one of --target-size and", 2),
        (("--target-bpw", "4", "--sample", "3"), "or all with --full", 2),
        (("--target-bpw", "4", "--save-recipe", "none/r.toml"), "there is no folder none", 1),
        (("--target-bpw", "4", "--save-recipe", "s3://b/r.toml"), "is an address; name a file", 1),
        (("--types", "k"), "--types is for --target-size and --target-bpw", 2),
        (("--save-recipe", "x.toml"), "--save-recipe is for --target-size and --target-bpw", 2),
    ],
)
def test_what_is_refused(path: Path, asked: tuple[str, ...], said: str, code: int) -> None:
    done = run("plan", path, "--to", "gguf", *asked, code=code)
    assert said in done.stderr
    assert "internal error" not in done.stderr


def test_the_command(path: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "r.toml"
    shown = run("plan", path, "--to", "gguf", "--target-bpw", "4.5").stdout
    assert 'to = "gguf-' in shown
    assert "asked for" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    done = run("plan", path, "--to", "gguf", "--target-size", "450KB", "--save-recipe", recipe)
    assert "the error of weights is not the quality of a model" in done.stdout
    run("convert", path, "--recipe", recipe, "-o", tmp_path / "x.gguf")
    assert (tmp_path / "x.gguf").stat().st_size <= 450_000
    done = run("plan", path, "--to", "gguf", "--target-bpw", "4", "--save-recipe", recipe, code=1)
    assert "exists already" in done.stderr
    run("plan", path, "--to", "gguf-q4_k_m", "--target-bpw", "4", code=2)


def test_allocation_is_near_the_best_and_never_above_a_start() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        options = {
            str(i): [
                Option(type, int(n * size), float(error))
                for type, size, error in zip(
                    "abc", (1, 2, 3), np.sort(rng.random(3))[::-1], strict=True
                )
            ]
            for i, n in enumerate(rng.integers(1, 9, 5))
        }
        budget = int(rng.integers(20, 60))
        ways = [dict(zip(options, way, strict=True)) for way in product(*options.values())]
        fits = [w for w in ways if sum(o.n_bytes for o in w.values()) <= budget]
        found = allocate(options, budget)
        if not fits:
            assert found is None
            continue
        assert found is not None
        assert sum(o.n_bytes for o in found.values()) <= budget
        best = min(fits, key=lambda w: sum(o.error for o in w.values()))
        start = {name: option.type for name, option in best.items()}
        exact = allocate(options, budget, [start])
        assert exact is not None
        total = sum(o.error for o in best.values())
        assert sum(o.error for o in exact.values()) <= total + 1e-12


def test_a_recipe_reads_as_people_write_it() -> None:
    types = {f"blk.{i}.ffn_down.weight": "Q6_K" if i < 4 or i > 27 else "Q4_K" for i in range(32)}
    types |= {f"blk.{i}.attn_v.weight": "Q5_K" for i in range(32)}
    types |= {f"blk.{i}.attn_q.weight": "Q4_K" for i in range(32)}
    types |= {"output.weight": "Q6_K", "token_embd.weight": "Q4_K", "a[0].weight": "Q5_K"}
    assert recipe_text("gguf-q4_k", "Q4_K", types, ["4.5 bits"]).splitlines() == [
        "# 4.5 bits",
        'to = "gguf-q4_k"',
        "pure = true",
        "",
        "[tensors]  # the first that fits decides",
        '"output.weight" = "q6_k"',
        '"a[[]0].weight" = "q5_k"',
        '"blk.[0-3].ffn_down.weight" = "q6_k"',
        '"blk.2[89].ffn_down.weight" = "q6_k"',
        '"blk.3[01].ffn_down.weight" = "q6_k"',
        '"blk.*.attn_v.weight" = "q5_k"',
    ]


def test_patterns_take_nothing_from_each_other() -> None:
    types = {f"model.layers.{i}.proj.weight": "Q5_K" if i % 2 else "Q6_K" for i in range(12)}
    types |= {f"model.layers.{i}.mlp.proj.weight": "Q4_K" for i in range(12)}
    types |= {f"model.layers.{i}.up.proj.weight": "Q4_K" for i in range(12)}
    types |= {"model.layers.3.up.proj.weight": "Q8_0", "norm.2.weight": "Q4_K"}
    text = recipe_text("gguf-q4_k", "Q4_K", types)
    rows = [line.replace('"', "").split(" = ") for line in text.splitlines() if line[:1] == '"']
    for name, type in types.items():
        found = next((told for glob, told in rows if fnmatchcase(name, glob)), "q4_k")
        assert found.upper() == type, name
