"""`amn check`: damage of each kind is found, sound models are not blamed."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import anamnesis as an
from anamnesis.cli.app import cli
from helpers.handmade import write_index, write_safetensors
from helpers.pairs_of_models import Arrays, llama, weights

UP = "model.layers.0.mlp.up_proj.weight"


def put(value: Any) -> Callable[[Arrays], None]:
    def edit(arrays: Arrays) -> None:
        arrays[UP][7, 9] = value

    return edit


def fill(value: Any, name: str = UP) -> Callable[[Arrays], None]:
    def edit(arrays: Arrays) -> None:
        arrays[name][:] = value

    return edit


def rows(arrays: Arrays) -> None:
    arrays[UP][3:5] = 0


def copy(arrays: Arrays) -> None:
    arrays["model.layers.1.mlp.up_proj.weight"] = arrays[UP]


DAMAGE: dict[str, tuple[Callable[[Arrays], None], str, str, str]] = {
    "NaN": (put(np.nan), "problem", "NaN", "1 of 131,072 values are NaN, first at [7, 9]"),
    "infinity": (
        put(-np.inf),
        "problem",
        "infinity",
        "1 of 131,072 values are infinite, first at [7, 9]",
    ),
    "zeros": (fill(0), "problem", "zeros", "all values are zero"),
    "negative zeros": (fill(-0.0), "problem", "zeros", "all values are zero"),
    "constant": (fill(0.25), "problem", "constant", "all values are the same"),
    "huge": (put(3e38), "problem", "size", "values are as large as 3e+38"),
    "rows": (rows, "note", "zero rows", "2 of 512 rows are zeros"),
    "vector": (fill(0, "model.norm.weight"), "note", "zeros", "all values are zero"),
    "copies": (copy, "note", "copies", "have the same bytes"),
}


@pytest.mark.parametrize("name", DAMAGE)
@pytest.mark.parametrize("dtype", ["bf16", "f32", "f16"])
def test_damage_is_found(tmp_path: Path, name: str, dtype: str) -> None:
    edit, severity, kind, text = DAMAGE[name]
    arrays = weights()
    edit(arrays)
    if dtype != "bf16":
        if name == "huge":
            return
        arrays = {
            n: a.astype({"f32": np.float32, "f16": np.float16}[dtype]) for n, a in arrays.items()
        }
    found = an.check(llama(tmp_path / "a", arrays))
    assert [(one.severity, one.kind, one.text) for one in found.findings] == [
        (severity, kind, text)
    ]
    assert found.ok is (severity == "note")


def test_copies_are_found_without_decoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from anamnesis.convert.compare import values

    monkeypatch.setattr(values, "decode_run", None)
    one = np.zeros((64, 64), np.float32)
    arrays = {name: one.copy() for name in "abcd"}
    for name, value in zip("abcd", (1, 2, 1, 1), strict=True):
        arrays[name][5, 7] = value
    an.save(arrays, tmp_path / "w.safetensors")
    copies = [one for one in an.check(tmp_path / "w.safetensors").notes if one.kind == "copies"]
    assert [one.names for one in copies] == [("a", "c", "d")]


@pytest.mark.parametrize("to", ["fp8-block", "int8", "gguf-q8_0", "gguf-f16", "nvfp4", "mlx-4bit"])
def test_damage_is_found_in_what_is_decoded(tmp_path: Path, to: str) -> None:
    out = tmp_path / ("b.gguf" if to.startswith("gguf") else "b")
    arrays = weights()
    an.convert(llama(tmp_path / "a", arrays), out, to)
    assert an.check(out).ok
    arrays[UP][:] = 0
    zeros = tmp_path / ("c.gguf" if to.startswith("gguf") else "c")
    an.convert(llama(tmp_path / "z", arrays), zeros, to, loss=False)
    (problem,) = an.check(zeros).problems
    assert problem.text == "all values are zero"


def test_headers_alone_read_no_values(tmp_path: Path) -> None:
    arrays = weights()
    arrays[UP][:] = np.nan
    path = llama(tmp_path / "a", arrays)
    assert an.check(path, values=False).ok
    assert not an.check(path).ok


def test_a_first_value_that_is_none_is_said_to_be_first(tmp_path: Path) -> None:
    arrays = weights()
    arrays[UP][[0, 300], 0] = np.nan
    (problem,) = an.check(llama(tmp_path / "a", arrays)).problems
    assert problem.text.endswith("first at [0, 0]")


def test_shapes_that_contradict_config(tmp_path: Path) -> None:
    path = llama(tmp_path / "a", config=lambda said: said.update(intermediate_size=300))
    (problem,) = an.check(path).problems
    assert problem.kind == "config"
    assert "mlp" in problem.text
    assert "300" in problem.text


def test_a_model_of_which_nothing_is_known_is_not_blamed(tmp_path: Path) -> None:
    found = an.check(llama(tmp_path / "a", config=lambda said: said.update(architectures=["X"])))
    assert found.ok
    assert found.done["config"].startswith("not checked: ")


def test_a_tied_head_that_differs(tmp_path: Path) -> None:
    path = llama(tmp_path / "a", config=lambda said: said.update(tie_word_embeddings=True))
    assert "tied head" in [problem.kind for problem in an.check(path).problems]


def test_an_index_that_names_what_is_not_there(tmp_path: Path) -> None:
    one = {"a": ("F32", (1,), np.float32(1).tobytes())}
    two = {"b": ("F32", (1,), np.float32(2).tobytes())}
    names = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    write_safetensors(tmp_path / names[0], one)
    write_safetensors(tmp_path / names[1], two)
    write_index(tmp_path, {"a": names[0], "b": names[1]})
    assert an.check(tmp_path).ok
    write_index(tmp_path, {"a": names[1], "b": names[1]})
    (problem,) = an.check(tmp_path).problems
    assert (problem.kind, problem.names) == ("index", ("a",))


def test_files_of_the_hubs_cache_have_its_hash(tmp_path: Path) -> None:
    arrays = {"w": np.arange(12, dtype=np.float32).reshape(3, 4)}
    an.save(arrays, tmp_path / "w.safetensors")
    raw = (tmp_path / "w.safetensors").read_bytes()
    repository = tmp_path / "models--org--name"
    blob = repository / "blobs" / hashlib.sha256(raw).hexdigest()
    snapshot = repository / "snapshots" / "abc"
    blob.parent.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    blob.write_bytes(raw)
    (snapshot / "model.safetensors").symlink_to(blob)
    found = an.check(snapshot)
    assert found.ok
    assert found.done["hub"] == "1 file checked"
    blob.write_bytes(raw[:-1] + b"\1")
    (problem,) = an.check(snapshot).problems
    assert (problem.kind, problem.names) == ("hash", ("model.safetensors",))


def test_the_codes_that_quantising_again_gives(tmp_path: Path) -> None:
    a, arrays = llama(tmp_path / "a"), weights()
    arrays[UP][0, 0] += 1
    b = llama(tmp_path / "b", arrays)
    for to, out in (("fp8-block", "q"), ("gguf-q4_k_m", "q.gguf"), ("int8", "q8")):
        an.convert(a, tmp_path / out, to)
        assert an.check(tmp_path / out, same_codes=a).ok
        found = an.check(tmp_path / out, same_codes=b)
        assert found.problems
        assert all("up" in problem.text for problem in found.problems)
    assert "nothing is quantised" in an.check(a, same_codes=b).problems[0].text


@pytest.mark.parametrize(
    "to",
    [
        *("gptq-4bit-64", "awq-4bit-64", "int4-asym-32", "mlx-4bit-32", "bnb-nf4-128"),
        *("bnb-nf4-nested", "bnb-fp4-nested", "fp8-block-ue8m0"),
    ],
)
def test_settings_are_those_that_the_codes_show(tmp_path: Path, to: str) -> None:
    a = llama(tmp_path / "a")
    an.convert(a, tmp_path / "q", to)
    assert an.check(tmp_path / "q", same_codes=a).ok


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), ()])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.int8, bool])
def test_tensors_without_values_are_sound(
    tmp_path: Path, dtype: Any, shape: tuple[int, ...]
) -> None:
    an.save({"w": np.ones(shape, dtype)}, tmp_path / "a.npz")
    found = an.check(tmp_path / "a.npz", manifest=tmp_path / "m.json")
    assert not found.findings
    assert an.check(tmp_path / "a.npz", manifest=tmp_path / "m.json").ok
    assert an.report(tmp_path / "a.npz", values=True).to_html()


def test_what_is_not_checked_is_said_without_options_of_another_verb(tmp_path: Path) -> None:
    arrays = weights()
    arrays["model.other.weight"] = arrays["model.norm.weight"]
    done = an.check(llama(tmp_path / "a", arrays), values=False).done["config"]
    assert done.startswith("not checked: 'model.other.weight' is no tensor of llama")
    assert "drop" not in done


def test_quantising_again_can_be_cancelled(tmp_path: Path) -> None:
    an.convert(llama(tmp_path / "a"), tmp_path / "q", "fp8-block")
    stop = threading.Event()
    stop.set()
    with pytest.raises(an.Cancelled):
        an.check(tmp_path / "q", values=False, same_codes=tmp_path / "a", cancel=stop)


def test_what_is_not_expected_is_said_in_values(tmp_path: Path) -> None:
    arrays = weights()
    arrays["model.norm.weight"][5] += 0.5
    b = llama(tmp_path / "b", arrays)
    with pytest.raises(an.OutputError, match=r"of 256 values, first at 5, by at most 0\.5"):
        an.convert(llama(tmp_path / "a"), tmp_path / "c", "bf16", expect_same=b)
    assert not (tmp_path / "c").exists()


def test_an_adapter_that_does_not_fit(tmp_path: Path) -> None:
    a, adapter = llama(tmp_path / "a"), tmp_path / "adapter"
    adapter.mkdir()
    said = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["up_proj"]}
    (adapter / "adapter_config.json").write_text(json.dumps(said))
    at = "base_model.model.model.layers.0.mlp.up_proj"
    for n_in, ok in ((256, True), (100, False)):
        arrays = {f"{at}.lora_A.weight": np.ones((4, n_in), np.float32)}
        arrays[f"{at}.lora_B.weight"] = np.ones((512, 4), np.float32)
        an.save(arrays, adapter / "adapter_model.safetensors", force=True)
        assert an.check(a, lora=adapter).ok is ok


def test_exit_codes(tmp_path: Path) -> None:
    arrays = weights()
    arrays[UP][0, 0] = np.nan
    a, b = llama(tmp_path / "a"), llama(tmp_path / "b", arrays)

    def code(*args: str | Path) -> int:
        return CliRunner().invoke(cli, ["check", *map(str, args)]).exit_code

    assert [code(a), code(b), code(a, b), code(tmp_path / "none"), code(a, tmp_path / "none")] == [
        *(0, 1, 1, 2, 2)
    ]
    assert code() == 2
    done = CliRunner().invoke(cli, ["check", str(b)])
    assert done.stdout.splitlines() == [
        f"Problem: NaN: {UP}: 1 of 131,072 values are NaN, first at [0, 0]",
        "21 tensors: 1 problem, 2.7 MB",
    ]
