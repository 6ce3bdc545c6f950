"""Experts as stacks or as matrices, as is asked, in values and in codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import anamnesis as an
from anamnesis.schemes.core.bands import cut_into
from convert.test_experts import BLOCK, LAYOUTS, beside, experts, saved, stacked, stored
from helpers.alike import files
from helpers.handmade import write_safetensors

IN_CODES = ("fp8-block", "mlx-4bit", "mlx-6bit", "mlx-mxfp4", "mlx-nvfp4", "mlx-mxfp8")
BOTH = ("stacks", "matrices")
Experts = Literal["stacked", "split", "keep"]
ASKED: tuple[tuple[str, Experts, str], ...] = (
    ("stacks", "split", "matrices"),
    ("matrices", "stacked", "stacks"),
)


def models(folder: Path, layout: str = "linear", **sizes: int) -> dict[str, Path]:
    """The same model with its experts as stacks, and one by one."""
    kind, transposed, alternating, biases = LAYOUTS[layout]
    n, inner, outer = (sizes.get(name, size) for name, size in SIZES.items())
    matrices = experts(n, inner, outer, "BF16", biases)
    stacks = stacked(matrices, transposed=transposed, alternating=alternating)
    made = dict(zip(BOTH, (stacks, matrices), strict=True))
    for name, arrays in made.items():
        (folder / name).mkdir(parents=True)
        saved(folder / name, {**beside(), **arrays}, kind)
    return {name: folder / name for name in BOTH}


SIZES = {"n": 3, "inner": 128, "outer": 256}


def converted(source: Path, out: Path, to: str, **options: Any) -> an.Report:
    with an.parse(source) as model:
        return model.convert(out, to, **options)


def values(source: Path) -> dict[str, bytes]:
    with an.parse(source) as model:
        return {name: model[name].numpy("f32").tobytes() for name in model}


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_values_in_both_directions(layout: str, tmp_path: Path) -> None:
    """Also where outputs alternate, and biases go with them."""
    paths = models(tmp_path, layout)
    for source, asked, want in ASKED:
        with an.parse(paths[source]) as model:
            report = model.remember(tmp_path / asked, experts=asked)
        assert stored(tmp_path / asked) == stored(paths[want])
        counted = report.taken_apart if asked == "split" else report.put_together
        per = {"gate_up_proj": 6, "down_proj": 3}
        kinds = ("", "_bias") if LAYOUTS[layout][3] else ("",)
        assert counted == {f"{BLOCK}.experts.{n}{k}": per[n] for n in per for k in kinds}


@pytest.mark.parametrize("asked", ["stacked", "split"])
def test_what_is_so_already_stays(asked: Experts, tmp_path: Path) -> None:
    paths = models(tmp_path)
    source = paths["stacks" if asked == "stacked" else "matrices"]
    with an.parse(source) as model:
        report = model.remember(tmp_path / "out", experts=asked)
    assert stored(tmp_path / "out") == stored(source)
    assert not report.taken_apart
    assert not report.put_together


@pytest.mark.parametrize("kind", ["gpt_oss", "llama4", "granitemoe"])
def test_kept_singles_of_a_class_with_stacks(kind: str, tmp_path: Path) -> None:
    """They are put together unless they are to stay."""
    (tmp_path / "in").mkdir()
    source = saved(tmp_path / "in", experts(2, 64, 96, biases=kind == "gpt_oss"), kind)
    with an.parse(source) as model:
        assert model.remember(tmp_path / "usual").put_together
        assert not model.remember(tmp_path / "out", experts="keep").put_together
    assert stored(tmp_path / "out") == stored(source)


def test_kept_stacks_stay_plain(tmp_path: Path) -> None:
    """An encoding whose tool takes them apart leaves them, and says so."""
    paths = models(tmp_path)
    report = converted(paths["stacks"], tmp_path / "out", "int8", experts="keep")
    names = [f"{BLOCK}.experts.{name}" for name in ("gate_up_proj", "down_proj")]
    assert [report.plain[name] for name in names] == ["a stack of experts"] * 2
    out, source = stored(tmp_path / "out"), stored(paths["stacks"])
    assert [out[name] for name in names] == [source[name] for name in names]
    # vLLM asks for single experts, whatever they are in.
    told = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    assert r"re:^model\.layers\.0\.mlp\.experts\..*" in told["ignore"]


@pytest.mark.parametrize("kind", ["mixtral", "minimax_m2", "phimoe"])
def test_names_of_mixtral(kind: str, tmp_path: Path) -> None:
    """Single experts have w1, w3 and w2 there; the module keeps its name."""
    matrices, other = experts(2, 64, 96), {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
    moe = "model.layers.0.block_sparse_moe"

    def renamed(name: str) -> str:
        for ours, theirs in other.items():
            name = name.replace(f".{ours}.weight", f".{theirs}.weight")
        return name.replace(BLOCK, moe)

    singles = {renamed(name): array for name, array in matrices.items()}
    stacks = {name.replace(BLOCK, moe): array for name, array in stacked(matrices).items()}
    for name, arrays in (("matrices", singles), ("stacks", stacks)):
        (tmp_path / name).mkdir()
        saved(tmp_path / name, arrays, kind)
    for source, asked, want in ASKED:
        with an.parse(tmp_path / source) as model:
            model.remember(tmp_path / asked, experts=asked)
        assert stored(tmp_path / asked) == stored(tmp_path / want)


def test_experts_without_gates(tmp_path: Path) -> None:
    """A stack of one layer, as of Nemotron-H."""
    arrays = {n: a for n, a in experts(2, 64, 96).items() if ".gate_proj." not in n}
    (tmp_path / "in").mkdir()
    with an.parse(saved(tmp_path / "in", arrays, "nemotron_h")) as model:
        model.remember(tmp_path / "out", experts="stacked")
    found = {name: shape for name, (_, shape, _) in stored(tmp_path / "out").items()}
    assert found == {
        f"{BLOCK}.experts.up_proj": (2, 64, 96),
        f"{BLOCK}.experts.down_proj": (2, 96, 64),
    }


# --- codes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", IN_CODES)
def test_codes_are_those_of_the_other_kind(to: str, tmp_path: Path) -> None:
    """Encoded as stacks and taken apart, or encoded one by one and put together: equal bytes."""
    source = models(tmp_path)["matrices"]
    made = {asked: tmp_path / f"{asked}-made" for asked in ("stacked", "keep")}
    for asked, out in made.items():
        converted(source, out, to, experts=asked)
    apart = converted(made["stacked"], tmp_path / "apart", to, experts="split")
    together = converted(made["keep"], tmp_path / "together", to, experts="stacked")
    assert stored(tmp_path / "apart") == stored(made["keep"])
    assert stored(tmp_path / "together") == stored(made["stacked"])
    assert sum(apart.taken_apart.values()) == sum(together.put_together.values()) == 9
    for report in (apart, together):
        assert not report.requantised
        assert report.repacked


@pytest.mark.sampled(2)
@pytest.mark.parametrize("to", IN_CODES)
def test_codes_are_decoded_as_they_were(to: str, tmp_path: Path) -> None:
    """Values of pieces and of stacks do not depend on who cut them."""
    source = models(tmp_path)["matrices"]
    for asked in ("stacked", "keep"):
        converted(source, tmp_path / asked, to, experts=asked)
    want = values(tmp_path / "keep")
    with an.parse(tmp_path / "stacked") as model:
        model.remember(tmp_path / "apart", "f32", experts="split")
    assert values(tmp_path / "apart") == want
    with an.parse(tmp_path / "keep") as model:
        model.remember(tmp_path / "together", "f32", experts="stacked")
    with an.parse(tmp_path / "together") as model:
        model.remember(tmp_path / "again", "f32", experts="split")
    assert values(tmp_path / "again") == want


def test_gpt_oss(tmp_path: Path) -> None:
    """Its turned stacks, whose outputs alternate, as compressed-tensors' matrices, and back."""
    source = models(tmp_path, "alternating")["stacks"]
    converted(source, tmp_path / "coded", "gptoss-mxfp4")
    only = {"include": "*.experts.*"}
    report = converted(tmp_path / "coded", tmp_path / "ct", "mxfp4", experts="split", **only)
    assert len(report.repacked) == 9
    assert not report.requantised
    back = converted(tmp_path / "ct", tmp_path / "back", "gptoss-mxfp4", experts="stacked")
    assert len(back.repacked) == 2
    assert stored(tmp_path / "back") == stored(tmp_path / "coded")
    with an.parse(tmp_path / "coded") as model:
        model.remember(tmp_path / "plain", "f32")
        apart = model.remember(tmp_path / "apart", "f32", experts="split")
    assert apart.consumed == {"scales": 2}
    with an.parse(tmp_path / "plain") as model:
        model.remember(tmp_path / "want", experts="split")
    assert stored(tmp_path / "apart") == stored(tmp_path / "want")
    assert values(tmp_path / "ct") == values(tmp_path / "want")


def test_one_scale_for_each_expert(tmp_path: Path) -> None:
    """Scales [experts, 1, 1] are those of single experts; gate and up share one."""
    rng = np.random.default_rng(3)
    codes = {"gate_up_proj": (3, 256, 128), "down_proj": (3, 128, 128)}
    entries: dict[str, Any] = {}
    for name, shape in codes.items():
        raw = rng.integers(0, 120, shape, np.uint8)
        scale = rng.uniform(0.01, 0.1, (3, 1, 1)).astype(np.float32)
        entries[f"{BLOCK}.experts.{name}"] = ("F8_E4M3", shape, raw.tobytes())
        entries[f"{BLOCK}.experts.{name}_scale_inv"] = ("F32", scale.shape, scale.tobytes())
    (tmp_path / "in").mkdir()
    write_safetensors(tmp_path / "in" / "model.safetensors", entries, {"format": "pt"})
    (tmp_path / "in" / "config.json").write_text('{"model_type": "qwen3_moe"}')
    with an.parse(tmp_path / "in") as model:
        model.remember(tmp_path / "plain", "f32")
        model.remember(tmp_path / "apart", "f32", experts="split")
    with an.parse(tmp_path / "plain") as model:
        model.remember(tmp_path / "want", experts="split")
    assert stored(tmp_path / "apart") == stored(tmp_path / "want")


@pytest.mark.parametrize("n_seconds", [1, 3])
def test_second_scales(n_seconds: int, tmp_path: Path) -> None:
    """NVFP4 as ModelOpt has it: one for all of a stack, or one for each matrix."""
    rng = np.random.default_rng(n_seconds)
    entries: dict[str, Any] = {}
    for name, (rows, cols) in {"gate_up_proj": (256, 128), "down_proj": (128, 128)}.items():
        at = f"{BLOCK}.experts.{name}"
        codes = rng.integers(0, 256, (3, rows, cols // 2), np.uint8)
        scales = rng.integers(1, 120, (3, rows, cols // 16), np.uint8)
        seconds = rng.uniform(0.01, 0.1, n_seconds).astype(np.float32)
        entries[at] = ("U8", codes.shape, codes.tobytes())
        entries[f"{at}_weight_scale"] = ("F8_E4M3", scales.shape, scales.tobytes())
        lone = () if n_seconds == 1 else (3,)
        entries[f"{at}_weight_scale_2"] = ("F32", lone, seconds.tobytes())
    (tmp_path / "in").mkdir()
    write_safetensors(tmp_path / "in" / "model.safetensors", entries, {"format": "pt"})
    (tmp_path / "in" / "config.json").write_text('{"model_type": "qwen3_5_moe"}')
    with an.parse(tmp_path / "in") as model:
        model.remember(tmp_path / "plain", "f32")
        apart = model.remember(tmp_path / "apart", "f32", experts="split")
        moved = model.convert(tmp_path / "moved", "nvfp4-modelopt", experts="split")
    assert apart.consumed == {"scales": 2, "second scales": 2}
    assert len(moved.repacked) == 9
    with an.parse(tmp_path / "plain") as model:
        model.remember(tmp_path / "want", experts="split")
    assert stored(tmp_path / "apart") == stored(tmp_path / "want")
    assert values(tmp_path / "moved") == values(tmp_path / "want")


@pytest.mark.sampled(5)
@pytest.mark.slow
@pytest.mark.parametrize("to", ["bf16", "fp8-block", "mlx-4bit"])
@pytest.mark.parametrize("asked", ["stacked", "split"])
def test_any_bands_and_threads(asked: Experts, to: str, tmp_path: Path) -> None:
    paths = models(tmp_path, n=3, inner=256, outer=384)
    source = tmp_path / "coded"
    converted(paths["matrices"], source, "fp8-block" if to == "bf16" else to,
              experts="keep" if asked == "stacked" else "stacked")  # fmt: skip
    with an.parse(source) as model:
        model.convert(tmp_path / "out", to, experts=asked, threads=1, verify=True)
        for n_bytes, threads in ((1, 4), (1 << 10, 1), (40_000, 3)):
            with cut_into(n_bytes):
                model.convert(tmp_path / "other", to, experts=asked, threads=threads, force=True)
            assert files(tmp_path / "other") == files(tmp_path / "out")


def test_a_run_is_resumed(tmp_path: Path) -> None:
    source = models(tmp_path)["stacks"]

    def stop(done: int, total: int) -> None:
        if 2 * done > total:
            raise KeyboardInterrupt

    with an.parse(source) as model:
        model.convert(tmp_path / "whole", "bf16", experts="split")
        with cut_into(1 << 12):
            with pytest.raises(KeyboardInterrupt):
                model.convert(tmp_path / "out", "bf16", experts="split", progress=stop, threads=1)
            model.convert(tmp_path / "out", "bf16", experts="split", resume=True)
    assert files(tmp_path / "out") == files(tmp_path / "whole")


# --- patterns -------------------------------------------------------------------------------------


def test_patterns_name_a_stack_or_its_pieces(tmp_path: Path) -> None:
    """Both are names of what is written."""
    paths = models(tmp_path)
    for exclude in ("*.experts.down_proj", "*.experts.*.down_proj.weight"):
        report = converted(
            paths["stacks"], tmp_path / "out", "int8", experts="split", exclude=exclude, force=True
        )
        left = [name for name, why in report.plain.items() if why == "excluded"]
        assert left == [f"{BLOCK}.experts.{i}.down_proj.weight" for i in range(3)]
    exclude = "*.experts.*.down_proj.weight"
    report = converted(
        paths["matrices"], tmp_path / "fp8", "fp8-block", experts="stacked", exclude=exclude
    )
    assert report.plain[f"{BLOCK}.experts.down_proj"] == "excluded"


# --- what cannot be -------------------------------------------------------------------------------


def _cut(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda arrays: {n: a for n, a in arrays.items() if n != name}


def _called(number: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Call the last of three experts by another number."""
    return lambda arrays: {
        n.replace("experts.2.", f"experts.{number}."): a for n, a in arrays.items()
    }


FIRST = f"{BLOCK}.experts.0.gate_proj.weight"
UNNUMBERED = "has a number that is not one of 0, 1, 2"
UNTOLD = "cannot be taken apart: experts that may be [in, out]"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_cut(FIRST), "cannot be put together: an expert lacks one of its weights"),
        (_called("3"), "an expert is missing"),
        (_called("02"), UNNUMBERED),
        (_called("٢"), UNNUMBERED),
        (_called("2" * 5000), UNNUMBERED),
        (lambda a: {**a, **_called("02")(a)}, UNNUMBERED),
        (lambda a: {**a, FIRST: a[FIRST][:64]}, "they are not all of one shape"),
        (lambda a: {**a, FIRST: a[FIRST].astype(np.float32)}, "pieces of a stack are of several"),
        (
            lambda a: {**a, f"{BLOCK}.experts.down_proj": np.zeros((3, 4), np.float32)},
            "there is a weight 'model.layers.0.mlp.experts.down_proj' already",
        ),
    ],
)
def test_singles_that_make_no_stack(
    change: Callable[[dict[str, Any]], dict[str, Any]], why: str, tmp_path: Path
) -> None:
    source = saved(tmp_path, change({**experts(3, 128, 256)}), "qwen3_moe")
    with an.parse(source) as model, pytest.raises(an.UnsupportedError) as caught:
        model.remember(tmp_path / "out", experts="stacked")
    assert why in str(caught.value)
    assert "experts='keep'" in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "shapes", "why"),
    [
        ("qwen3_moe", {"gate_up_proj": (2, 128, 96)}, UNTOLD),
        ("qwen3_moe", {"gate_up_proj": (2, 0, 96), "down_proj": (2, 96, 0)}, "no values"),
        ("qwen3_moe", {"w1": (2, 128, 96)}, "its name is none that is known of a stack"),
        (
            "other",
            {"gate_up_proj": (2, 96, 128), "down_proj": (2, 64, 96), "gate_up_proj_bias": (2, 128)},
            "experts with biases, of a model_type that is not known",
        ),
    ],
)
def test_stacks_that_are_not_taken_apart(
    kind: str, shapes: dict[str, tuple[int, ...]], why: str, tmp_path: Path
) -> None:
    arrays = {f"{BLOCK}.experts.{n}": np.ones(s, np.float32) for n, s in shapes.items()}
    (tmp_path / "in").mkdir()
    with an.parse(saved(tmp_path / "in", arrays, kind)) as model:
        with pytest.raises(an.UnsupportedError) as caught:
            model.remember(tmp_path / "out", experts="split")
        assert why in str(caught.value)
        model.remember(tmp_path / "out", experts="keep")


@pytest.mark.parametrize(
    "to", ["int8", "int4", "nvfp4", "fp8-channel", "nvfp4-modelopt", "bnb-nf4"]
)
def test_encodings_without_stacks(to: str, tmp_path: Path) -> None:
    """They would leave a stack plain."""
    source = models(tmp_path)["matrices"]
    with an.parse(source) as model, pytest.raises(an.UnsupportedError) as caught:
        model.plan(to, experts="stacked")
    assert f"{model.plan(to).encodings}".count(to)
    assert "has no stacks of experts" in str(caught.value)


def test_blocks_of_two_matrices(tmp_path: Path) -> None:
    """A grid whose blocks lie over gate and up is not cut."""
    shape, grid = (2, 192, 128), (2, 2, 1)
    codes, scales = bytes(2 * 192 * 128), np.ones(grid, np.float32).tobytes()
    down = np.ones((2, 128, 96), np.float32)
    entries: dict[str, Any] = {
        f"{BLOCK}.experts.gate_up_proj": ("F8_E4M3", shape, codes),
        f"{BLOCK}.experts.gate_up_proj_scale_inv": ("F32", grid, scales),
        f"{BLOCK}.experts.down_proj": ("F32", down.shape, down.tobytes()),
    }
    write_safetensors(tmp_path / "model.safetensors", entries, {"format": "pt"})
    told = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3_moe", **told}))
    with an.parse(tmp_path) as model, pytest.raises(an.UnsupportedError) as caught:
        model.remember(tmp_path / "out", experts="split")
    assert "cannot be cut between its rows" in str(caught.value)


def test_pieces_asked_for_apart(tmp_path: Path) -> None:
    source = models(tmp_path)["matrices"]
    with an.parse(source) as model, pytest.raises(an.UnsupportedError) as caught:
        model.plan("fp8-block", experts="stacked", exclude="*.experts.1.*")
    assert "its pieces are asked for in different ways" in str(caught.value)


def test_edited_stacks(tmp_path: Path) -> None:
    """Other values are cut as those that are stored: of an array, and of what a function makes."""
    path = models(tmp_path)["stacks"]
    (tmp_path / "other").mkdir()
    arrays = {name: array / 2 for name, array in all_of(path).items()}
    saved(tmp_path / "other", arrays, "qwen3_moe")
    edits: list[dict[str, Any]] = [{"*": lambda t: t.numpy() / 2}, dict(arrays)]
    for to in ("bf16", "int8", "fp8-block"):
        want = tmp_path / f"want-{to}"
        converted(tmp_path / "other", want, to, experts="split")
        for i, edit in enumerate(edits):
            report = converted(path, tmp_path / f"{to}-{i}", to, experts="split", edit=edit)
            assert sum(report.taken_apart.values()) == 9
            assert stored(tmp_path / f"{to}-{i}") == stored(want)


def all_of(source: Path) -> dict[str, Any]:
    with an.parse(source) as model:
        return {name: model[name].numpy("bf16") for name in model}


def test_edited_experts_that_cannot_be_cut_or_joined(tmp_path: Path) -> None:
    """Values in the place of codes have no dtype to be cut in; functions hold a whole weight."""
    paths = models(tmp_path)
    converted(paths["stacks"], tmp_path / "codes", "fp8-block")
    cases: tuple[tuple[Path, Experts, str], ...] = (
        (tmp_path / "codes", "split", "cannot be taken apart: it is fine-grained FP8 .*, edited"),
        (paths["matrices"], "stacked", "cannot be put together: one of them is edited"),
    )
    for source, asked, why in cases:
        with an.parse(source) as model:
            name = next(name for name in model if "down_proj" in name)
            values = model[name].numpy("f32") * 2
            edit = {name: values if asked == "split" else lambda _, values=values: values}
            with pytest.raises(an.UnsupportedError, match=why) as caught:
                model.plan("bf16", experts=asked, edit=edit)
            assert "experts='keep'" in str(caught.value)


@pytest.mark.parametrize("to", ["bf16", "fp8-block"])
def test_experts_of_which_one_is_an_array_are_put_together(tmp_path: Path, to: str) -> None:
    source = models(tmp_path)["matrices"]
    with an.parse(source) as model:
        name = next(name for name in model if "down_proj" in name)
        edit = {name: model[name].numpy("f32") * 2}
        model.convert(tmp_path / "edited", "safetensors", edit=edit, experts="keep")
        model.convert(tmp_path / "at-once", to, edit=edit, experts="stacked")
    with an.parse(tmp_path / "edited") as model:
        model.convert(tmp_path / "in-turn", to, experts="stacked")
    assert stored(tmp_path / "at-once") == stored(tmp_path / "in-turn")


def test_codes_of_different_settings(tmp_path: Path) -> None:
    """They make no stack of codes: they are decoded, which is counted, and refused if asked."""
    source = models(tmp_path)["matrices"]
    with an.parse(source) as model:
        model.convert(tmp_path / "one", "fp8-block", experts="keep")
    lone = (tmp_path / "two.safetensors", "fp8-block-64x64")
    with an.parse(source) as model:
        model.convert(*lone, include="*.experts.1.*")
    entries: dict[str, Any] = stored(tmp_path / "one")
    entries |= {n: what for n, what in stored(lone[0]).items() if ".experts.1." in n}
    (tmp_path / "mixed").mkdir()
    write_safetensors(tmp_path / "mixed" / "model.safetensors", entries, {"format": "pt"})
    (tmp_path / "mixed" / "config.json").write_text('{"model_type": "qwen3_moe"}')
    with an.parse(tmp_path / "mixed") as model:
        report = model.convert(tmp_path / "out", "fp8-block", experts="stacked")
        assert report.requantised.keys() == report.put_together.keys()
        assert not report.repacked.keys() & report.put_together.keys()
        with pytest.raises(an.UnsupportedError):
            model.plan("fp8-block", experts="stacked", lossless=True)


@pytest.mark.parametrize("asked", ["stacked", "split"])
def test_gguf_has_names_of_its_own(asked: Experts, tmp_path: Path) -> None:
    paths = models(tmp_path)
    source = paths["matrices" if asked == "stacked" else "stacks"]
    with an.parse(source) as model, pytest.raises(an.UnsupportedError) as caught:
        model.plan("gguf", experts=asked, names="keep")
    assert "GGUF has experts as stacks under names of its own" in str(caught.value)
    with an.parse(source) as model:
        model.plan("gguf", experts="keep", names="keep")


def test_stacks_of_a_gguf(tmp_path: Path) -> None:
    """They are not taken apart, and are stacks already."""
    stack = ("F32", (2, 64, 32), bytes(4 * 2 * 64 * 32))
    write_safetensors(tmp_path / "in.safetensors", {"blk.0.ffn_gate_exps.weight": stack})
    with an.parse(tmp_path / "in.safetensors") as model:
        model.convert(tmp_path / "in.gguf", "gguf")
    with an.parse(tmp_path / "in.gguf") as model:
        with pytest.raises(an.UnsupportedError, match="GGUF has experts as stacks"):
            model.plan("bf16", experts="split")
        assert not model.plan("bf16", experts="stacked").account.put_together


def test_what_experts_can_be(tmp_path: Path) -> None:
    source = models(tmp_path)["stacks"]
    with an.parse(source) as model, pytest.raises(ValueError, match="'stacked', 'split' or 'keep'"):
        model.plan("bf16", experts="apart")  # type: ignore[arg-type]
