"""`amn remember`: what it writes, what it says, and what it exits with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open

import anamnesis as an
from helpers.cli_runs import CODES, NORM, ORPHAN, SMALL, amn, remembered
from helpers.handmade import Entry

WriteModel = Callable[..., Path]
IN_FULL = "in 3 tensors (2 weights, 1 scale), out 2, dropped 0\n"
OVERFLOWS = int(np.isinf(np.frombuffer(remembered("f16"), np.float16)).sum())


def tensors_of(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """Read a file with safetensors' own header parser."""
    with safe_open(path, "np") as file:
        names = list(file.keys())
        kinds = {n: (file.get_slice(n).get_dtype(), file.get_slice(n).get_shape()) for n in names}
    raw = path.read_bytes()
    n = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + n])
    data = raw[8 + n :]
    return {k: (*kinds[k], data[slice(*header[k]["data_offsets"])]) for k in names}


@pytest.mark.parametrize("to", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("command", ["remember", "dequantize"])
def test_writes_what_ml_dtypes_computes(
    tmp_path: Path, write_model: WriteModel, command: str, to: str
) -> None:
    write_model(SMALL, name="model-fp8.safetensors")
    done = amn(command, "model-fp8.safetensors", "--to", to, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""
    assert tensors_of(tmp_path / f"model-{to}.safetensors") == {
        "layers.0.up_proj.weight": (to.upper(), [8, 4], remembered(to)),
        "norm.weight": ("BF16", [6], NORM.tobytes()),
    }


def test_says_what_it_did(tmp_path: Path, write_model: WriteModel) -> None:
    write_model(SMALL, name="model-fp8.safetensors")
    done = amn("remember", "model-fp8.safetensors", cwd=tmp_path)
    size = (tmp_path / "model-bf16.safetensors").stat().st_size
    lines = done.stdout.splitlines()
    assert lines[0] == "Parsing...   2 tensors, per-channel FP8 (E4M3)"
    assert lines[1].startswith("Recalling... 1 tensor [====================] ")
    assert lines[1].endswith("s")
    assert lines[2] == f"Output: model-bf16.safetensors ({size} B)"
    assert lines[3:] == [IN_FULL.strip()]


def test_lists_each_scheme_of_a_mixed_file(tmp_path: Path, write_model: WriteModel) -> None:
    mixed: dict[str, Entry] = {
        **SMALL,
        **{
            f"b{i}.weight{suffix}": entry
            for i in range(10)
            for suffix, entry in (
                ("", ("F8_E4M3", (8, 4), CODES.tobytes())),
                ("_scale", ("F32", (), bytes(4))),
            )
        },
    }
    write_model(mixed)
    done = amn("remember", "model.safetensors", cwd=tmp_path)
    assert done.stdout.startswith(
        "Parsing...   12 tensors, 2 schemes\n"
        "             10 per-tensor FP8 (E4M3)\n"
        "              1 per-channel FP8 (E4M3)\n"
        "Recalling... 11 tensors ["
    )


def test_copies_what_is_not_quantised(tmp_path: Path, write_model: WriteModel) -> None:
    write_model({"norm.weight": SMALL["norm.weight"]})
    done = amn("remember", "model.safetensors", "--cast-all", "--to", "f32", cwd=tmp_path)
    assert done.stdout.startswith("Parsing...   1 tensor, none quantised\nCopying...   1 tensor [")
    expected = NORM.astype(np.float32).tobytes()
    assert tensors_of(tmp_path / "model-f32.safetensors") == {"norm.weight": ("F32", [6], expected)}


def unfolded(text: str) -> str:
    """Return a text whose sentences are in a line each."""
    return text.replace("\n    ", " ")


def test_reports_overflows(tmp_path: Path, write_model: WriteModel) -> None:
    write_model(SMALL)
    assert OVERFLOWS > 1
    words = (
        f"overflow: {OVERFLOWS} values are too large for F16 and became infinite: "
        f"layers.0.up_proj.weight ({OVERFLOWS})"
    )
    aloud = amn("remember", "model.safetensors", "--to", "f16", cwd=tmp_path)
    assert unfolded(aloud.stdout).endswith(f"{IN_FULL}  {words}\n")
    quiet = amn("remember", "model.safetensors", "--to", "f16", "--force", "-q", cwd=tmp_path)
    assert (quiet.stdout, quiet.stderr) == ("", f"amn: warning: {words}\n")
    assert (aloud.returncode, quiet.returncode) == (0, 0)


def test_reports_what_is_dropped(tmp_path: Path, write_model: WriteModel) -> None:
    lasts = (
        *("input_scale", "output_scale", "act_scale", "activation_scale", "scale_input"),
        *("input_scale_ub", "qscale_act"),
    )
    ranges = {f"layers.0.up_proj.{last}": ORPHAN for last in lasts}
    write_model(SMALL | ranges, name="m-fp8/model.safetensors")
    (tmp_path / "m-fp8" / "quantize_config.json").write_text("{}")
    done = amn("remember", "m-fp8", cwd=tmp_path)
    assert max(map(len, done.stdout.splitlines())) <= 80
    first, *more = unfolded(done.stdout).splitlines()[3:]
    assert first == "in 10 tensors (2 weights, 1 scale), out 2, dropped 7"
    shown = ", ".join(list(ranges)[:5])
    assert more[0].startswith("  dropped 7 (")
    assert more[0].endswith(f"): {shown} and 2 more")
    assert more[1].startswith("  left out (")
    assert more[1].endswith("): quantize_config.json")
    told = json.loads(amn("remember", "m-fp8", "--json", "--force", cwd=tmp_path).stdout)
    assert [d["name"] for d in told["dropped"]] == [*ranges, "quantize_config.json"]


def test_an_orphan_stops_it_unless_it_may_pass(tmp_path: Path, write_model: WriteModel) -> None:
    write_model(SMALL | {"lost.weight_scale": ORPHAN})
    refused = amn("remember", "model.safetensors", cwd=tmp_path)
    assert refused.returncode == 1
    assert refused.stderr.startswith("amn: error: model.safetensors: lost.weight_scale ")
    assert "--allow-unknown" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.safetensors"]
    passed = amn("remember", "model.safetensors", "--allow-unknown", cwd=tmp_path)
    assert "  passed through 1 that could not be read: lost.weight_scale\n" in passed.stdout
    output = tensors_of(tmp_path / "model-bf16.safetensors")
    assert output["lost.weight_scale"] == ("F32", [1], ORPHAN[2])


def test_json_is_the_report(tmp_path: Path, write_model: WriteModel) -> None:
    path = write_model(SMALL, name="model-fp8.safetensors")
    done = amn("remember", path, "--to", "f16", "--json")
    told = json.loads(done.stdout)
    output = tmp_path / "model-f16.safetensors"
    assert told.pop("seconds") >= 0
    with an.parse(path) as model:
        report = model.remember(tmp_path / "again.safetensors", "f16").to_dict()
    del report["path"], report["seconds"]
    report = json.loads(json.dumps(report))
    assert told == {"path": str(path), "output": str(output), **report}
    assert told["overflows"] == {"layers.0.up_proj.weight": OVERFLOWS}
    assert (done.stderr, done.returncode) == ("", 0)


def test_existing_output_is_kept_without_force(tmp_path: Path, write_model: WriteModel) -> None:
    write_model(SMALL, name="model-fp8.safetensors")
    output = tmp_path / "model-bf16.safetensors"
    output.write_bytes(b"mine")
    kept = amn("remember", "model-fp8.safetensors", cwd=tmp_path)
    assert kept.returncode == 1
    assert kept.stderr.endswith("model-bf16.safetensors: exists; --force replaces it\n")
    assert output.read_bytes() == b"mine"
    assert amn("remember", "model-fp8.safetensors", "--force", cwd=tmp_path).returncode == 0
    assert tensors_of(output)["norm.weight"][2] == NORM.tobytes()


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_output_that_is_the_input_is_refused(write_model: WriteModel, force: list[str]) -> None:
    path = write_model(SMALL)
    before = path.read_bytes()
    done = amn("remember", path, "-o", path, *force)
    assert done.returncode == 1
    assert "is the input" in done.stderr
    assert path.read_bytes() == before


def test_one_failure_does_not_stop_a_batch(tmp_path: Path, write_model: WriteModel) -> None:
    write_model(SMALL, name="a-fp8.safetensors")
    (tmp_path / "b.safetensors").write_bytes(b"not one at all")
    write_model(SMALL, name="c-fp8.safetensors")
    inputs = ["a-fp8.safetensors", "b.safetensors", "c-fp8.safetensors"]
    done = amn("remember", *inputs, "-o", "out", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("amn: error: b.safetensors: ")
    assert done.stderr.count("\n") == 1
    reason = done.stderr.removeprefix("amn: error: ")
    size = (tmp_path / "out" / "a-bf16.safetensors").stat().st_size
    assert done.stdout == (
        f"a-fp8.safetensors -> {Path('out', 'a-bf16.safetensors')} ({size} B)\n"
        f"c-fp8.safetensors -> {Path('out', 'c-bf16.safetensors')} ({size} B)\n"
        f"\n2 of 3 remembered, 1 failed:\n  {reason}"
    )
    written = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert written == ["a-bf16.safetensors", "c-bf16.safetensors"]
    told = json.loads(
        amn("remember", *inputs, "-o", "out", "--force", "--json", cwd=tmp_path).stdout
    )
    assert [t["path"] for t in told] == inputs
    assert ["error" in t for t in told] == [False, True, False]


def test_a_batch_that_succeeds_says_so(tmp_path: Path, write_model: WriteModel) -> None:
    write_model(SMALL, name="a.safetensors")
    write_model(SMALL, name="b.safetensors")
    done = amn("remember", "a.safetensors", "b.safetensors", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.endswith("\n\n2 of 2 remembered\n")


def test_no_input_takes_another_inputs_output(tmp_path: Path, write_model: WriteModel) -> None:
    first = write_model(SMALL, name="x/m-fp8.safetensors")
    less = {name: SMALL[name] for name in SMALL if name != "norm.weight"}
    second = write_model(less, name="y/m-fp8.safetensors")
    done = amn("remember", first, second, "-o", tmp_path / "out", "--force")
    assert done.returncode == 1
    assert "y/m-fp8.safetensors: its output" in done.stderr.replace("\\", "/")
    assert len(tensors_of(tmp_path / "out" / "m-fp8-bf16.safetensors")) == 2


def test_a_directory_becomes_a_directory(tmp_path: Path, write_model: WriteModel) -> None:
    write_model(SMALL, name="Qwen3-FP8/model.safetensors")
    (tmp_path / "Qwen3-FP8" / "config.json").write_text('{"model_type": "qwen3"}')
    done = amn("remember", "Qwen3-FP8/", "--max-shard-size", "70", cwd=tmp_path)
    assert done.returncode == 0
    assert "Output: Qwen3-bf16 (" in done.stdout
    assert sorted(p.name for p in (tmp_path / "Qwen3-bf16").iterdir()) == [
        "config.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
    ]


def test_options_reach_the_library(
    tmp_path: Path, write_model: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    from anamnesis.cli.app import cli
    from anamnesis.model import Model

    seen: dict[str, object] = {}
    real = Model.remember

    def spy(self: Model, out: str, dtype: str, **options: object) -> object:
        seen.update(options, out=out, dtype=dtype)
        return real(self, out, dtype, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Model, "remember", spy)
    folder = tmp_path / "model"
    folder.mkdir()
    path = write_model(SMALL).rename(folder / "model.safetensors").parent
    out = str(tmp_path / "o")
    args = ["--threads", "3", "--force", "--resume", "--sync", "--cast-all", "--allow-unknown"]
    args += ["--math", "reference", "--experts", "keep"]
    line = ["remember", str(path), "-o", out, "--to", "FP32", "--max-shard-size", "2GiB", *args]
    done = CliRunner().invoke(cli, [*line, "-q"])
    assert done.exit_code == 0, done.output
    assert seen == {
        "out": out,
        "dtype": "f32",
        "drop": (),
        "experts": "keep",
        "threads": 3,
        "force": True,
        "resume": True,
        "sync": True,
        "part": None,
        "executor": None,
        "cast_all": True,
        "allow_unknown": True,
        "math": "reference",
        "max_shard_size": 2 * 1024**3,
    }


def test_void_dtype(tmp_path: Path) -> None:
    path = tmp_path / "codes.npy"
    np.save(path, CODES.view(ml_dtypes.float8_e4m3fn))
    assert "--void-dtype" in amn("remember", path).stderr
    assert "F8_E4M3" in amn("parse", path, "--void-dtype", "float8_e4m3fn").stdout
    assert amn("parse", path, "--void-dtype", "F9").returncode == 2


def test_metadata_without_a_place_is_told_of_by_the_formats_title(
    tmp_path: Path, write_model: WriteModel
) -> None:
    path = write_model(SMALL, metadata={"made_by": "me"})
    for extension, title in {"gguf": "GGUF", "npz": "NPZ", "pth": "PyTorch"}.items():
        done = amn("remember", path, "-o", tmp_path / f"x.{extension}")
        assert f"\n  left out (metadata that {title} has no place for): made_by\n" in done.stdout


# --- what it takes after --to ---------------------------------------------------------------------


def test_a_file_is_cut_into_shards(tmp_path: Path, write_model: WriteModel) -> None:
    write_model(SMALL, name="model-fp8.safetensors")
    amn("remember", "model-fp8.safetensors", cwd=tmp_path)
    whole = tensors_of(tmp_path / "model-bf16.safetensors")
    for out in ([], ["-o", "there"], ["-o", "new/"]):
        folder = tmp_path / (out[1] if out else "model-bf16")
        if folder.name == "there":
            folder.mkdir()
        done = amn(
            "remember", "model-fp8.safetensors", "--max-shard-size", "64", *out, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        assert {path.name for path in folder.iterdir()} == {
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json",
        }
        found = {n: t for p in folder.glob("*.safetensors") for n, t in tensors_of(p).items()}
        assert found == whole


@pytest.mark.sampled(2)
@pytest.mark.parametrize("to", ["safetensors", "gguf", "npz", "pth", "gguf-f16", "NPZ"])
def test_containers_by_name(tmp_path: Path, write_model: WriteModel, to: str) -> None:
    model = write_model(SMALL, name="model-fp8.safetensors")
    done = amn("remember", model.name, "--to", to, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    container, _, word = to.lower().partition("-")
    dtype: Literal["bf16", "f16"] = "f16" if word else "bf16"
    with an.parse(tmp_path / f"model-{dtype}.{container}") as made, an.parse(model) as read:
        assert made.format_id == {"pth": "torch"}.get(container, container)
        assert made.state_dict("f32").keys() == read.keys()
        for name in read:
            wanted = read[name].numpy(dtype if read[name].is_quantized else "bf16")
            assert made[name].numpy("f32").tobytes() == wanted.astype(np.float32).tobytes()


def test_dtype_is_a_quiet_name(tmp_path: Path, write_model: WriteModel) -> None:
    write_model(SMALL, name="model-fp8.safetensors")
    for i, args in enumerate((["--dtype", "f16"], ["--to", "gguf", "--dtype", "fp16"])):
        done = amn("remember", "model-fp8.safetensors", *args, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / f"model-f16.{('safetensors', 'gguf')[i]}").exists()
    shown = amn("remember", "--help").stdout
    assert "--dtype" not in shown


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--to", "fp8-block"], "'fp8-block' quantises; amn forget and amn convert write it"),
        (["--to", "safetensor"], "container 'safetensor' (did you mean 'safetensors'?)"),
        (["--to", "fp61"], "there is no dtype or container 'fp61'"),
        (["--dtype", "fp8-block"], "'fp8-block' is none of bf16, f16, f32"),
        (["--to", "f16", "--dtype", "f32"], "the target f16 contradicts --dtype f32"),
    ],
)
def test_what_remember_does_not_write(
    tmp_path: Path, write_model: WriteModel, args: list[str], message: str
) -> None:
    write_model(SMALL)
    done = amn("remember", "model.safetensors", *args, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.sampled(6)
@pytest.mark.parametrize("ending", ["onnx", "txt", "h5", "tar", "tar.gz", "ONNX"])
@pytest.mark.parametrize(
    "verb", [["remember"], ["remember", "--to", "f16"], ["forget", "--to", "fp8-tensor"]]
)
def test_endings_that_are_not_written(
    tmp_path: Path, write_model: WriteModel, verb: list[str], ending: str
) -> None:
    model = write_model(SMALL)
    done = amn(*verb, model.name, "-o", f"x.{ending}", cwd=tmp_path)
    last = "." + ending.rpartition(".")[2]
    assert (done.returncode, done.stderr) == (
        1,
        f"amn: error: x.{ending}: {last} files cannot be written; name one that ends in"
        " .safetensors, .gguf, .npz, .npy or .pth\n",
    )
    assert list(tmp_path.iterdir()) == [model]


@pytest.mark.parametrize("out", ["x", "x.onnx", "x.tmp", "Qwen2.5-7b"])
def test_other_names_of_outputs(tmp_path: Path, write_model: WriteModel, out: str) -> None:
    write_model(SMALL)
    to = ["--to", "safetensors"] if out == "x.onnx" else []
    done = amn("remember", "model.safetensors", "-o", out, *to, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert tensors_of(tmp_path / out)
