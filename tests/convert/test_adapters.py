"""Adapters that cannot be right end in one error that names the file and the key."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any, NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner

import anamnesis as an
from anamnesis.cli.app import cli
from anamnesis.convert.lora.deltas import Delta, Shelf
from helpers.damage import damaged
from helpers.recorded_hf import described, recorded, through_gguf

PEFT = {"peft_type": "LORA", "r": 2, "lora_alpha": 4}
EXPERTS = {**PEFT, "target_parameters": ["experts.up_proj", "experts.down_proj"]}
BASE = {"a.weight": (8, 6), "b.weight": (8, 6), "a.bias": (8,), "x.experts.down_proj": (2, 5, 6)}


def drawn(shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """Return small integers, of which all sums are exact."""
    rng = np.random.default_rng(0)
    return {n: rng.integers(-8, 8, s).astype(np.float32) for n, s in shapes.items()}


def factors(module: str = "a", /, **others: tuple[int, ...]) -> dict[str, Any]:
    """Return the factors of a module, and other parts of it; those that are given take a place."""
    shapes: dict[str, tuple[int, ...]] = {"lora_A.weight": (2, 6), "lora_B.weight": (8, 2)}
    shapes |= {name.replace("__", "."): shape for name, shape in others.items()}
    return drawn({f"{module}.{name}": shape for name, shape in shapes.items()})


def of_experts(**others: tuple[int, ...]) -> dict[str, Any]:
    shapes: dict[str, tuple[int, ...]] = {"lora_A__weight": (4, 6), "lora_B__weight": (5, 4)}
    return factors("x.experts", **{**shapes, **others})


def saved(folder: Path, tensors: dict[str, Any], config: Any = None, said: Any = None) -> Path:
    """Save an adapter: a folder with its config, or a file, which may have diffusers'."""
    folder.mkdir()
    metadata = {} if said is None else {"lora_adapter_metadata": said}
    file = folder / f"{'adapter_model' if said is None else 'pytorch_lora_weights'}.safetensors"
    an.save(tensors, file, metadata=metadata)
    if config is None:
        return file
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def merged(
    folder: Path, *adapters: Path | str, base: dict[str, Any] | None = None
) -> dict[str, Any]:
    before, after = (folder / f"{name}.safetensors" for name in ("base", "out"))
    an.save(base or drawn(BASE), before, force=True)
    an.convert(before, after, lora=list(adapters), force=True)
    with an.parse(after) as model:
        return {name: model[name].numpy() for name in model}


class Case(NamedTuple):
    tensors: dict[str, Any]
    config: Any
    words: str
    said: Any = None


def keyed(key: str, value: Any, words: str, **others: Any) -> Case:
    return Case(factors(**others), {**PEFT, key: value}, f"adapter_config.json: .*{words}")


TWICE = {**factors(), "base_model.model.b.weight": drawn({"b": (8, 6)})["b"]}
BARE = json.dumps({"r": 2, "lora_alpha": 4})
REFUSED = {
    "alpha of two": Case(factors(alpha=(2,)), None, "'a.alpha' is not a single number"),
    "alpha of none": Case(factors(alpha=(0,)), None, "'a.alpha' is not a single number"),
    "alpha, not a number": Case(
        {**factors(), "a.alpha": np.array(np.nan, np.float32)}, None, "'a.alpha' is not a finite"
    ),
    "alpha and config": Case(
        {**factors(), "a.alpha": np.array(3, np.float32)}, PEFT, "scale 1.5, but the config 2"
    ),
    "three factors": Case(factors(lora_embedding_A=(2, 6)), None, "'a' must have two factors"),
    "factors of two kinds": Case(
        {k: v for k, v in factors(lora_embedding_A=(2, 6)).items() if "lora_A" not in k},
        None,
        "'a' must have two factors",
    ),
    "rank": keyed("r", 3, "rank of 'a' is 3 here, but 2"),
    "rank of mlx-lm": keyed("lora_parameters", {"rank": 3}, "rank of 'a' is 3 here, but 2"),
    "rank pattern": keyed("rank_pattern", {"a": 1}, "rank of 'a' is 1 here, but 2"),
    "a large alpha": keyed("lora_alpha", 10**400, "lora_alpha is not a number"),
    "a large repetition": keyed("alpha_pattern", {"a{99999999999}": 1}, "pattern"),
    "magnitude of none": Case(
        factors(lora_magnitude_vector=(0,)), None, r"vector' is \[0\], for 8 norms"
    ),
    "magnitude of columns": Case(
        factors(lora_magnitude_vector=(6,)), None, r"vector' is \[6\], for 8 norms"
    ),
    "no magnitude": keyed("use_dora", True, "", lora_B__bias=(8,))._replace(
        words="'a' has no magnitude, but use_dora is True"
    ),
    "a magnitude": keyed("use_dora", False, "", lora_magnitude_vector=(8,))._replace(
        words="'a' has a magnitude, but use_dora is False"
    ),
    "a bias": keyed("lora_bias", False, "", lora_B__bias=(8,))._replace(
        words="'a' has a bias, but lora_bias is False"
    ),
    "experts' vectors": Case(of_experts(lora_A__weight=(24,)), EXPERTS, "'x.experts'.* matrices"),
    "experts' scalars": Case(of_experts(lora_B__weight=()), EXPERTS, "'x.experts'.* not matrices"),
    "experts' bias": Case(of_experts(lora_B__bias=(5,)), EXPERTS, "'x.experts'.* have bias"),
    "experts' DoRA": Case(
        of_experts(), {**EXPERTS, "use_dora": True}, "'x.experts'.* have use_dora"
    ),
    "one stack for two": Case(
        {**of_experts(), **{n.replace("s.", "s.base_layer."): t for n, t in of_experts().items()}},
        EXPERTS,
        "'x.experts' and 'x.experts.base_layer' both fit 'x.experts.down_proj'",
    ),
    "two whole tensors": Case({**TWICE, "b.weight": TWICE["a.lora_A.weight"]}, PEFT, "there twice"),
    "whole tensors of one weight": Case(
        {**TWICE, "model.b.weight": TWICE["base_model.model.b.weight"]}, PEFT, "both fit 'b.weight'"
    ),
    "two modules of one weight": Case(
        {**factors("lora_te1_b"), **factors("lora_te2_b")}, None, "'lora_te1_b' and 'lora_te2_b'"
    ),
    "metadata, no JSON": Case(factors(), None, "lora_adapter_metadata: not valid JSON", "{"),
    "metadata, a list": Case(factors(), None, "lora_adapter_metadata: must hold", "[1]"),
    "metadata, a rank": Case(
        factors("unet.a"), None, "metadata of 'unet': .*rank of 'unet.a' is 3", '{"unet.r": 3}'
    ),
    "metadata, other kinds": Case(
        factors("unet.a"), None, "metadata of 'unet': .*alpha is not", '{"unet.lora_alpha": []}'
    ),
    "metadata of a method": Case(factors(), None, "is of type LOKR", '{"peft_type": "LOKR"}'),
    "metadata of nobody": Case(
        factors("unet.a"), None, "has configs, but none for 'unet'", '{"transformer.r": 2}'
    ),
    **{
        f"{key} of another kind": keyed(key, value, f"{key} must be")
        for key, value in {
            **dict.fromkeys(("use_dora", "use_rslora", "fan_in_fan_out", "lora_bias"), "true"),
            **dict.fromkeys(("alpha_pattern", "rank_pattern", "lora_parameters"), "x"),
            "target_parameters": "experts.down_proj",
            "init_lora_weights": 5,
        }.items()
    },
    "names of parameters": keyed("target_parameters", [1], "must be a list of names"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_adapter_that_cannot_be_right_is_refused(tmp_path: Path, case: str) -> None:
    tensors, config, words, said = REFUSED[case]
    adapter = saved(tmp_path / "adapter", tensors, config, said)
    with pytest.raises(an.AnamnesisError, match=words) as error:
        merged(tmp_path, adapter)
    assert str(adapter) in str(error.value)


def test_a_weight_is_replaced_once(tmp_path: Path) -> None:
    whole = {**factors(), "b.weight": factors()["a.lora_A.weight"].repeat(4, 0)}
    adapters = [saved(tmp_path / name, whole, PEFT) for name in "xy"]
    assert np.array_equal(merged(tmp_path, adapters[0])["b.weight"], whole["b.weight"])
    with pytest.raises(an.AnamnesisError, match=r"y/.*replaces 'b\.weight'.* one after the other"):
        merged(tmp_path, *adapters)
    first = saved(tmp_path / "z", factors("b"), PEFT)
    with pytest.raises(an.AnamnesisError, match=r"y/.*replaces 'b\.weight'"):
        merged(tmp_path, first, adapters[1])


def test_factors_are_added_to_the_tensor_of_an_adapter_before(tmp_path: Path) -> None:
    whole = {**factors(), "b.weight": drawn({"b": (8, 6)})["b"] + 1}
    adapters = [saved(tmp_path / "x", whole, PEFT), saved(tmp_path / "y", factors("b"), PEFT)]
    a, b = factors("b").values()
    assert np.array_equal(merged(tmp_path, *adapters)["b.weight"], whole["b.weight"] + 2 * b @ a)


def test_rows_without_a_norm_become_nan_in_silence(tmp_path: Path) -> None:
    parts = factors(lora_magnitude_vector=(8,))
    parts["a.lora_B.weight"][:4], parts["a.lora_magnitude_vector"][:] = 0, 1
    parts["a.lora_B.weight"][4:] = 1e30
    base = drawn(BASE)
    base["a.weight"][:4] = 0
    got = merged(tmp_path, saved(tmp_path / "adapter", parts, PEFT), base=base)["a.weight"]
    assert np.isnan(got[:4]).all()


def test_a_module_that_fits_two_weights_is_refused(tmp_path: Path) -> None:
    adapter = saved(tmp_path / "adapter", factors("model.layers.0.q"), PEFT)
    base = drawn({"text.layers.0.q.weight": (8, 6), "vision.layers.0.q.weight": (8, 6)})
    with pytest.raises(an.AnamnesisError, match=r"fits both 'text\.layers\.0\.q\.weight' and 'vis"):
        merged(tmp_path, adapter, base=base)
    base["vision.layers.0.q.weight"] = base["vision.layers.0.q.weight"][:6]
    got = merged(tmp_path, adapter, base=base)
    assert [name for name in base if not np.array_equal(got[name], base[name])] == [*base][:1]


@pytest.mark.parametrize("name", ["down_proj", "{}.down_proj.weight"])
@pytest.mark.parametrize("own", ["", "model.language_model.", "language_model.model."])
def test_experts_lie_below_other_wrappers(tmp_path: Path, own: str, name: str) -> None:
    names = dict.fromkeys(name.format(expert) for expert in range(2))
    shape = (5, 6) if "weight" in name else (2, 5, 6)
    base = drawn(dict.fromkeys((f"{own}layers.0.x.experts.{one}" for one in names), shape))
    parts = {f"model.layers.0.{part}": values for part, values in of_experts().items()}
    got = merged(tmp_path, saved(tmp_path / "adapter", parts, EXPERTS), base=base)
    a, b = (
        parts["model.layers.0.x.experts.lora_A.weight"],
        parts["model.layers.0.x.experts.lora_B.weight"],
    )
    added = np.stack([2 * b[:, e::2] @ a[2 * e : 2 * e + 2] for e in range(2)]).reshape(-1, *shape)
    for values, (key, before) in zip(added, base.items(), strict=True):
        assert np.array_equal(got[key], before + values)


@pytest.mark.parametrize("own", ["model.language_model", "language_model.model"])
def test_a_whole_tensor_is_of_the_part_that_the_factors_are_of(tmp_path: Path, own: str) -> None:
    whole = {"model.layers.0.q.bias": drawn({"bias": (8,)})["bias"]}
    adapter = saved(tmp_path / "adapter", {**factors("model.layers.0.q"), **whole}, PEFT)
    base = drawn({f"{own}.layers.0.q.weight": (8, 6), "vision.model.layers.0.q.bias": (8,)})
    with pytest.raises(an.AnamnesisError, match=r"'model\.layers\.0\.q\.bias' is neither a factor"):
        merged(tmp_path, adapter, base=base)
    base[f"{own}.layers.0.q.bias"] = np.zeros(8, np.float32)
    got = merged(tmp_path, adapter, base=base)
    assert [name for name in base if np.array_equal(got[name], base[name])] == [*base][1:2]


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), 10**400, "x"])
def test_the_weight_of_an_adapter_is_a_number(tmp_path: Path, weight: Any) -> None:
    an.save(drawn(BASE), tmp_path / "base.safetensors")
    adapter = saved(tmp_path / "adapter", factors(), PEFT)
    with (
        an.parse(tmp_path / "base.safetensors") as model,
        pytest.raises((TypeError, ValueError), match=r"the weight of .*adapter must be"),
    ):
        model.plan(lora={adapter: weight})


def test_an_adapter_is_named_once(tmp_path: Path) -> None:
    adapter = saved(tmp_path / "adapter", factors(), PEFT)
    with pytest.raises(ValueError, match="adapter is named twice"):
        merged(tmp_path, adapter, tmp_path / "x" / ".." / "adapter")
    words = ["merge", tmp_path / "base.safetensors", adapter, adapter, "-o", tmp_path / "o"]
    done = CliRunner().invoke(cli, list(map(str, words)))
    assert (done.exit_code, done.stderr.count("is named twice")) == (1, 1)


@pytest.mark.parametrize("address", ["hf://me/adapter", "https://a@host/x.safetensors?key=1"])
def test_an_adapter_elsewhere_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(an.UnsupportedError, match=r"^(hf://me/adapter|https://host/x\.\w+): adap"):
        merged(tmp_path, address)


def test_factors_are_held_against_limits(tmp_path: Path) -> None:
    adapter = saved(tmp_path / "adapter", factors(), PEFT)
    an.save(drawn({"a.weight": (8, 6)}), tmp_path / "base.safetensors")
    limits = an.ParseLimits(max_single_alloc=1000)
    with an.parse(tmp_path / "base.safetensors", limits=limits) as model:
        model.plan(lora=adapter)
        large = {"a.lora_A.weight": np.ones((80, 6), np.float32)}
        large["a.lora_B.weight"] = np.ones((8, 80), np.float32)
        an.save(large, adapter / "adapter_model.safetensors", force=True)
        with pytest.raises(an.LimitExceeded, match=r"the tensor 'a\.lora_A\.weight'"):
            model.plan(lora=adapter)


PLACES = (("unet", "a"), ("te", "b"))
# What the product of factors of rank 2 is multiplied by, for what is said of it.
SCALES = {
    '{"r": 2, "lora_alpha": 6}': (3, 3),
    '{"unet.r": 2, "unet.lora_alpha": 6, "te.lora_alpha": 2}': (3, 1),
    '{"unet.lora_alpha": 6, "te.lora_alpha": 4}': (3, 2),
    '{"te.lora_alpha": 6, "lora_alpha": 4}': (2, 3),
    '{"unet.alpha_pattern": {"a": 10}, "te.alpha_pattern": {"^b": 2, "b": 6}}': (5, 1),
}


@pytest.mark.parametrize("said", SCALES)
def test_each_component_has_its_config(tmp_path: Path, said: str) -> None:
    tensors = {**factors("unet.a"), **factors("te.b")}
    adapter = saved(tmp_path / "adapter", tensors, {**PEFT, "lora_alpha": 100}, said)
    base = drawn(BASE)
    got = merged(tmp_path, adapter, base={f"{of}.{n}.weight": base["a.weight"] for of, n in PLACES})
    for (of, n), scale in zip(PLACES, SCALES[said], strict=True):
        product = tensors[f"{of}.{n}.lora_B.weight"] @ tensors[f"{of}.{n}.lora_A.weight"]
        assert np.array_equal(got[f"{of}.{n}.weight"], base["a.weight"] + product * scale)


def whole_adapter(folder: Path) -> tuple[Path, dict[str, Any], dict[str, Any]]:
    """Save an adapter that has a bit of everything, and fits the base."""
    tensors = {
        **factors(lora_magnitude_vector=(8,)),
        **factors("b"),
        "b.alpha": np.array([4], np.float32),
        **of_experts(),
        "a.bias": drawn(BASE)["a.bias"],
    }
    config = {**EXPERTS, "alpha_pattern": {"a": 2}, "rank_pattern": {}, "use_rslora": False}
    adapter = saved(folder / "adapter", tensors, config)
    assert merged(folder, adapter)
    return adapter, tensors, config


ODD: dict[str, Callable[[Any], Any]] = {
    "flat": lambda t: t.reshape(-1),
    "deep": lambda t: t[None],
    "turned": lambda t: np.ascontiguousarray(t.T),
    "empty": lambda t: t.reshape(-1)[:0],
    "of no columns": lambda t: np.zeros((*t.shape[:1], 0), np.float32),
    "scalar": lambda t: np.float32(1).reshape(()),
    "longer": lambda t: np.concatenate([t, t]),
}


@pytest.mark.parametrize("shape", ODD)
def test_a_part_of_another_shape_ends_in_one_error(tmp_path: Path, shape: str) -> None:
    adapter, tensors, _ = whole_adapter(tmp_path)
    for name, tensor in tensors.items():
        others = {**tensors, name: ODD[shape](tensor)}
        an.save(others, adapter / "adapter_model.safetensors", force=True)
        with suppress(an.AnamnesisError):
            merged(tmp_path, adapter)


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.float64, np.float16])
def test_an_alpha_of_any_number(tmp_path: Path, dtype: Any) -> None:
    adapters = []
    for i, kind in enumerate((np.float32, dtype)):
        tensors = {**factors(), "a.alpha": np.array(4, kind)}
        adapters.append(merged(tmp_path, saved(tmp_path / f"{i}", tensors))["a.weight"])
    assert np.array_equal(*adapters)


@pytest.mark.slow
def test_damage_ends_in_one_error(tmp_path: Path) -> None:
    adapter, tensors, config = whole_adapter(tmp_path)
    with an.parse(tmp_path / "base.safetensors") as model:
        for path in sorted(adapter.iterdir()):
            raw = path.read_bytes()
            for seed in range(100):
                path.write_bytes(damaged(raw, seed))
                with suppress(an.AnamnesisError):
                    model.convert(tmp_path / "out.safetensors", lora=adapter, force=True)
            path.write_bytes(raw)
        for seed in range(100):
            text = damaged(json.dumps({"a.r": 2, "x.lora_alpha": 4, **config}).encode(), seed)
            said = {"lora_adapter_metadata": text.decode(errors="replace")}
            an.save(tensors, adapter / "adapter_model.safetensors", metadata=said, force=True)
            with suppress(an.AnamnesisError):
                model.convert(tmp_path / "out.safetensors", lora=adapter, force=True)


def test_factors_are_loaded_side_by_side_and_few_are_kept() -> None:
    both, n_made = Barrier(2), [0] * 9

    def make(i: int) -> Any:
        n_made[i] += 1
        if i < 2:
            both.wait(timeout=5)
        return np.ones((2, 2), np.float32)

    one = np.ones((2, 2), np.float32)
    deltas = [Delta(partial(make, i), lambda: one, 1.0, range(2), 2) for i in range(len(n_made))]
    shelf = Shelf()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(shelf.factors, deltas[:2]))
    for delta in (*deltas[2:], *deltas[-3:], *deltas[-3:]):
        shelf.factors(delta)
    assert n_made == [1] * len(deltas)
    shelf.factors(deltas[3])
    assert n_made[3] == 2


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="says what is open on Linux alone")
@pytest.mark.parametrize(
    ("module", "down"),
    [
        ("unet.x.to_out.0", "unet.x.processor.to_out_lora.down"),
        ("unet.x.to_q", "unet.x.processor.to_q_lora.down"),
        ("unet.x.to_q", "unet.x.to_q_lora.down"),
        ("unet.x.to_q", "unet.x.to_q.lora.down"),
        ("te.q_proj", "te.q_proj.lora_linear_layer.down"),
    ],
)
def test_older_names_of_diffusers(tmp_path: Path, module: str, down: str) -> None:
    base = {f"{module}.weight": drawn(BASE)["a.weight"]}
    a, b = factors().values()
    old = {f"{down}.weight": a, f"{down.replace('down', 'up')}.weight": b}
    new = {f"{module}.lora_A.weight": a, f"{module}.lora_B.weight": b}
    files = [saved(tmp_path / name, one) for name, one in (("new", new), ("old", old))]
    wanted, got = (merged(tmp_path, file, base=base)[f"{module}.weight"] for file in files)
    assert np.array_equal(wanted, got)
    assert not np.array_equal(wanted, base[f"{module}.weight"])


def test_a_run_is_not_resumed_with_another_config(tmp_path: Path) -> None:
    adapter = saved(tmp_path / "adapter", factors(), PEFT)
    merged(tmp_path, adapter)
    digests = []
    for alpha in (4, 8, 4):
        (adapter / "adapter_config.json").write_text(json.dumps({**PEFT, "lora_alpha": alpha}))
        with an.parse(tmp_path / "base.safetensors") as model:
            digests.append(model.plan(lora=adapter).digest())
    assert digests[0] == digests[2] != digests[1]


def test_a_run_is_not_resumed_with_other_values(tmp_path: Path) -> None:
    an.save(drawn(BASE), tmp_path / "base.safetensors")
    digests = []
    for value in (1, 2, 1):
        whole = {**factors(), "b.weight": np.full((8, 6), value, np.float32)}
        an.save(whole, tmp_path / "adapter.safetensors", force=True)
        with an.parse(tmp_path / "base.safetensors") as model:
            digests.append(model.plan(lora=tmp_path / "adapter.safetensors").digest())
    assert digests[0] != digests[1]


def test_files_are_closed_after_a_merge(tmp_path: Path) -> None:
    adapter = saved(tmp_path / "adapter", factors(), PEFT)
    assert merged(tmp_path, adapter)
    with an.parse(tmp_path / "base.safetensors") as model:
        model.plan(lora=adapter)
        model.convert(tmp_path / "out.safetensors", lora=adapter, force=True)
        opened = [path for path in Path("/proc/self/fd").iterdir() if path.exists()]
        assert not [path for path in opened if adapter in path.resolve().parents]


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    file = saved(tmp_path / "adapter", factors())
    with pytest.raises(an.AnamnesisError, match=r"nothing gives the scale of 'a'.*name the file"):
        merged(tmp_path, file.parent)
    plain = merged(tmp_path, file)["a.weight"]
    file.rename(file.parent / "pytorch_lora_weights.safetensors")
    assert np.array_equal(merged(tmp_path, file.parent)["a.weight"], plain)


def test_a_folder_of_two_adapters_is_refused(tmp_path: Path) -> None:
    adapter = saved(tmp_path / "adapter", factors(), PEFT)
    an.save(factors(), adapter / "pytorch_lora_weights.safetensors")
    with pytest.raises(an.AnamnesisError, match=r"has adapter_model.* and pytorch_lora_weights"):
        merged(tmp_path, adapter)
    (adapter / "adapter_model.safetensors").unlink()
    assert merged(tmp_path, adapter)


def test_a_gguf_is_merged_as_the_directory_that_it_becomes(tmp_path: Path) -> None:
    through_gguf("qwen2", tmp_path)
    module = "model.layers.0.self_attn.q_proj"
    with an.parse(tmp_path / "back") as model:
        rows, cols = model.stored[f"{module}.weight"].shape
    parts = factors(module, lora_A__weight=(2, cols), lora_B__weight=(rows, 2))
    adapter = saved(tmp_path / "adapter", parts, PEFT)
    for base, out in (("there.gguf", "once"), ("back", "twice")):
        an.convert(tmp_path / base, tmp_path / out, "f32", lora=adapter)
    once, twice = (
        {path.name: path.read_bytes() for path in (tmp_path / out).iterdir()}
        for out in ("once", "twice")
    )
    assert once == twice


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "to"),
    [
        *(("llama", to) for to in ("gguf-f32", "gguf-f16", "gguf-bf16", "gguf-q4_0")),
        *((name, "gguf-q8_0") for name in ("llama", "qwen2", "gemma3", "qwen3moe")),
        ("qwen3moe", "gguf-q4_0"),
    ],
)
def test_a_gguf_keeps_its_names_types_and_metadata(tmp_path: Path, name: str, to: str) -> None:
    through_gguf(name, tmp_path, to)
    norm, expert = "model.layers.1.input_layernorm", "model.layers.0.mlp.experts.1.up_proj"
    parts: dict[str, Any] = {}
    changed = {"blk.0.attn_q.weight", "blk.1.attn_norm.weight"}
    with an.parse(tmp_path / "back") as model:
        for module in ("model.layers.0.self_attn.q_proj", expert):
            if f"{module}.weight" in model:
                rows, cols = model.stored[f"{module}.weight"].shape
                parts |= factors(module, lora_A__weight=(2, cols), lora_B__weight=(rows, 2))
                changed |= {"blk.0.ffn_up_exps.weight"} if module == expert else set()
        values = np.arange(model.stored[f"{norm}.weight"].shape[0], dtype=np.float32) % 8
    parts[f"base_model.model.{norm}.weight"] = values
    adapter = saved(tmp_path / "adapter", parts, PEFT)
    base, out = tmp_path / "there.gguf", tmp_path / "out.gguf"
    an.convert(base, out, lora=adapter)
    dtype = to.removeprefix("gguf-") if "16" in to else "f32"
    an.convert(base, tmp_path / "dir", dtype, lora=adapter)
    an.convert(tmp_path / "dir", tmp_path / "wanted.gguf", to, tokenizer_pre=recorded(name).pre)
    before, wanted, found = map(described, (base, tmp_path / "wanted.gguf", out))
    assert found["keys"] == before["keys"]
    assert found["tensors"].keys() == before["tensors"].keys()
    for tensor, told in found["tensors"].items():
        same = wanted if tensor in changed else before
        assert told == same["tensors"][tensor], tensor
        assert (told == before["tensors"][tensor]) == (tensor not in changed)


def test_a_gguf_is_merged_into_the_type_that_is_asked_for(tmp_path: Path) -> None:
    through_gguf("llama", tmp_path, "gguf-q4_0")
    parts = factors(
        "model.layers.0.mlp.down_proj", lora_A__weight=(2, 256), lora_B__weight=(128, 2)
    )
    adapter, base = saved(tmp_path / "adapter", parts, PEFT), tmp_path / "there.gguf"
    an.convert(base, tmp_path / "out.gguf", "gguf-q8_0", lora=adapter)
    an.convert(base, tmp_path / "dir", "f32", lora=adapter)
    pre = recorded("llama").pre
    an.convert(tmp_path / "dir", tmp_path / "wanted.gguf", "gguf-q8_0", tokenizer_pre=pre)
    found, wanted = (described(tmp_path / f"{name}.gguf")["tensors"] for name in ("out", "wanted"))
    name = "blk.0.ffn_down.weight"
    assert found[name] == wanted[name]


def test_an_adapter_in_gguf_is_refused(tmp_path: Path) -> None:
    """Its names end as mlx-lm's, and its factors lie the other way."""
    an.save({f"a.lora_{x}": np.ones((6, 6), np.float32) for x in "ab"}, tmp_path / "a.gguf")
    with pytest.raises(an.UnsupportedError, match=r"a\.gguf: adapters in GGUF are not merged"):
        merged(tmp_path, tmp_path / "a.gguf", base=drawn({"a.weight": (6, 6)}))


def test_an_adapter_inside_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    adapter = saved(tmp_path / "run" / "checkpoint-1", factors(), PEFT)
    with pytest.raises(an.ParseError) as error:
        merged(tmp_path, tmp_path / "run")
    assert str(error.value).endswith(f"name one inside, such as {adapter}")
