"""`amn forget`, `amn convert` and `amn plan`: what they write, say, and exit with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner

import anamnesis as an
from anamnesis.cli.app import cli
from anamnesis.cli.output_names import Naming, derived_name
from anamnesis.convert.request.form import Form
from anamnesis.convert.request.targets import listed, mixes, names, target
from anamnesis.schemes.encodings import ENCODINGS
from helpers.cli_runs import amn, run
from helpers.gguf_handmade import STRING, U32, Tensor, gguf_bytes
from helpers.handmade import Entry, write_index, write_safetensors

RNG = np.random.default_rng(3)
Q, K = "layers.0.q_proj.weight", "layers.0.k_proj.weight"


def bf16(*shape: int, scale: float = 1.0) -> Entry:
    values = (RNG.normal(size=shape) * scale).astype(ml_dtypes.bfloat16)
    return "BF16", shape, values.tobytes()


TENSORS: dict[str, Entry] = {
    Q: bf16(256, 128),
    K: bf16(128, 256, scale=1e-3),
    "layers.0.o_proj.weight": bf16(8, 5),
    "norm.weight": bf16(128),
}


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_safetensors(Path("model-bf16.safetensors"), TENSORS)


def told(*args: str | Path) -> Any:
    return json.loads(run(*args, "--json").stdout)


def expected(path: Path, to: str, **options: Any) -> bytes:
    """Return what the library writes."""
    out = path.with_name("expected.tmp")
    with an.parse(path) as opened:
        opened.convert(out, to, force=True, **options)
    return out.read_bytes()


# --- forget ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["forget", "quantize", "quantise"])
def test_forget_writes_and_says_what_the_library_does(model: Path, verb: str) -> None:
    done = run(verb, model, "--to", "fp8-fine-grained")
    made = Path("model-fp8.safetensors")
    assert made.read_bytes() == expected(model, "fp8-block")
    with an.parse(model) as opened:
        report = opened.forget("again.safetensors", "fp8-block")
    assert report.loss is not None
    ((name, worst),) = report.loss.worst()
    assert worst.snr_db == min(loss.snr_db or 0 for loss in report.loss.weights.values())
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == "Parsing...    4 tensors, BF16"
    assert lines[1].startswith("Forgetting... 2 tensors [====================] ")
    assert lines[2:] == [
        f"Output: model-fp8.safetensors ({made.stat().st_size / 1000:.1f} KB)",
        f"Lethe distance: SNR {report.loss.total.snr_db:.1f} dB, mean error"
        f" {report.loss.total.mean:.2g}, largest {report.loss.total.largest:.2g}",
        f"  worst weight: {worst.snr_db:.1f} dB, {name}",
        "in 4 tensors, out 6, dropped 0",
        "  encoded 2 weights as fp8-block",
        "  left 1 plain: not in whole blocks of 128x128",
        "  left 1 plain: not a matrix",
        "  transformers and vLLM do not load this: no config.json tells its codes;",
        "    convert the model's directory",
    ]


@pytest.mark.parametrize("beside", ["config.json", "model.safetensors.index.json"])
def test_an_output_that_spoils_a_models_directory_is_refused(model: Path, beside: str) -> None:
    Path("m").mkdir()
    source = model.rename("m/model.safetensors")
    how = ("forget", source, "--to", "fp8-block", "--force")
    assert run(*how).stderr == ""  # a lone file
    weights = dict.fromkeys(TENSORS, source.name)
    Path("m", beside).write_text(json.dumps({"weight_map": weights}))
    Path("m/model-fp8.safetensors").unlink()
    refusal = "would be taken for a part of the model in m; name the output"
    for more in ((), ("--json",), ("-o", "m"), ("-o", "m/")):
        done = run(*how, *more, code=1)
        output = "m/model-fp8.safetensors"
        assert done.stderr == f"amn: error: {output}: {refusal} with -o\n"
        run("parse", "m")
    elsewhere = write_safetensors(Path("other-bf16.safetensors"), TENSORS)
    done = run("forget", elsewhere, source, "--to", "fp8-block", "-o", "m", code=1)
    assert done.stderr.count(refusal) == 2
    run("parse", "m")
    assert run("convert", source, "--to", "gguf-f16").stderr == ""
    assert run(*how, "-o", "m/named.safetensors").stderr == ""
    run("remember", "m", code=1)  # so it is


def test_shards_without_a_config_are_a_model_too(model: Path) -> None:
    Path("m").mkdir()
    for i, name in enumerate((Q, K), 1):
        shard = Path(f"m/model-{i:05}-of-00002.safetensors")
        write_safetensors(shard, {name: TENSORS[name]})
    run("forget", shard, "--to", "fp8-block", code=1)
    run("forget", model, "--to", "fp8-block", "-o", "m/", code=1)
    run("parse", "m")


@pytest.mark.parametrize("names", [["a", "b"], ["adapter_model"], ["unet-a", "vae-b", "c"]])
def test_a_folder_of_lone_files_takes_outputs(model: Path, names: list[str]) -> None:
    for name in names:
        write_safetensors(Path("loras", f"{name}.safetensors"), TENSORS)
    Path("loras/adapter_config.json").write_text("{}")
    assert run("forget", "-r", "loras", "--to", "fp8-block").stderr == ""
    made = {path.stem for path in Path("loras").glob("*.safetensors")}
    assert made == {*names, *(f"{name}-fp8" for name in names)}


def test_files_that_are_models_each_are_not_refused(model: Path) -> None:
    Path("config.json").write_text("{}")
    write_safetensors(Path("other.safetensors"), TENSORS)
    assert run("forget", model, "--to", "fp8-block").stderr == ""


def test_loss_of_each_weight_is_in_json(model: Path) -> None:
    report = told("forget", model, "--to", "fp8-block")
    assert set(report["loss"]["weights"]) == {Q, K}
    assert set(report["plain"]) == set(TENSORS) - {Q, K}
    assert (report["encoding"], report["n_encoded"]) == ("fp8-block", 2)
    values = np.frombuffer(TENSORS[Q][2], ml_dtypes.bfloat16).astype(np.float32)
    with an.parse("model-fp8.safetensors") as opened:
        error = np.abs(opened[Q].numpy().ravel() - values).astype(np.float64)
    # It is summed up in float32 by runs of a few thousand values.
    assert report["loss"]["weights"][Q]["mean"] == pytest.approx(error.mean(), rel=1e-6)
    assert told("forget", model, "--to", "fp8-block", "--force", "--no-loss")["loss"] is None


def test_worst_weights(model: Path) -> None:
    report = told("forget", model, "--to", "fp8-block")
    by_noise = sorted((Q, K), key=lambda name: -report["loss"]["weights"][name]["nmse"])
    lines = run("forget", model, "--to", "fp8-block", "--force", "--worst").stdout.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("Lethe distance"))
    shown = [line.split() for line in lines[start + 1 : start + 3]]
    assert [words[0] for words in shown] == by_noise
    assert shown[0][2] == f"{report['loss']['weights'][by_noise[0]]['snr_db']:.1f}"
    assert lines[start + 3].startswith("in 4 tensors")


@pytest.mark.parametrize(("layer", "lines"), [(1, 1), (31, 1), (10**12, 2)])
def test_lines_of_worst_weights_fit_80_columns(model: Path, layer: int, lines: int) -> None:
    names = [f"model.layers.{layer}.self_attn.{k}_proj.weight" for k in "qkv"]
    tensors = {name: bf16(128, 128, scale=0.03) for name in names}
    write_safetensors(Path("long.safetensors"), tensors)
    done = run("forget", "long.safetensors", "--to", "fp8-channel", "--worst")
    said = done.stdout.splitlines()
    assert max(map(len, said[2:])) <= 80
    start = next(i for i, line in enumerate(said) if line.startswith("Lethe distance"))
    shown = [line.split() for line in said[start + 1 : start + 1 + 3 * lines]]
    assert {words[0] for words in shown[::lines]} == set(names)
    figures = [words[-7:] for words in shown[lines - 1 :: lines]]
    assert all((words[0], words[2]) == ("SNR", "dB") for words in figures)
    assert said[start + 1 + 3 * lines].startswith("in 3 tensors")


def test_a_long_name_of_the_worst_weight_gets_its_line(model: Path) -> None:
    names = [f"model.layers.{layer}.self_attn.qkv_{'proj' * 10}.weight" for layer in (0, 1)]
    write_safetensors(Path("long.safetensors"), {name: bf16(128, 128) for name in names})
    said = run("forget", "long.safetensors", "--to", "fp8-tensor").stdout.splitlines()
    start = next(i for i, line in enumerate(said) if line.startswith("  worst weight: "))
    assert said[start].endswith(" dB")
    assert said[start + 1].strip() in names
    assert max(map(len, said)) <= 80


def test_what_loses_nothing_says_so(model: Path) -> None:
    ones = np.ones((128, 128), ml_dtypes.bfloat16).tobytes()
    write_safetensors(Path("ones.safetensors"), {Q: ("BF16", (128, 128), ones)})
    said = run("forget", "ones.safetensors", "--to", "fp8-block").stdout
    assert "\nLethe distance: none, every value comes back\n" in said


def test_an_encoding_has_one_name_in_plan_and_account(model: Path) -> None:
    options = ("--tensor", f"{Q}=int4-32")
    planned = told("plan", model, "--to", "int4", *options)["encodings"]
    report = told("forget", model, "--to", "int4", *options)
    assert report["encodings"] == {"int4-128": 1, "int4-32": 1}
    assert planned == report["encodings"] | {"bf16": 2}
    said = run("forget", model, "--to", "int4", *options, "--force").stdout
    lines = {f"  encoded 1 weight as {name}" for name in report["encodings"]}
    assert lines <= set(said.splitlines())


def test_counts_say_which_way(model: Path) -> None:
    there = told("forget", model, "--to", "fp8-block")
    assert [there[n] for n in ("n_decoded", "n_encoded", "n_repacked")] == [0, 2, 0]
    back = told("remember", "model-fp8.safetensors", "-o", "back.safetensors")
    assert [back[n] for n in ("n_decoded", "n_encoded", "n_quantized")] == [2, 0, 2]


def test_choosing_what_is_encoded(model: Path) -> None:
    only = told("forget", model, "--to", "fp8-block", "--include", "*.q_proj.*")
    assert (only["n_encoded"], only["n_in"]) == (1, 4)
    assert only["plain"][K] == "excluded"
    but = told("forget", model, "--to", "fp8-block", "--exclude", Q, "--force")
    assert set(but["loss"]["weights"]) == {K}
    mixed = ("--tensor", f"{Q}=fp8-tensor", "--tensor", "*.q_*=keep", "--rename", r"^layers\.=l.")
    run("forget", model, "--to", "fp8-block", "-o", "mixed.safetensors", *mixed)
    with an.parse("mixed.safetensors") as opened:
        assert "Per-tensor" in opened["l.0.q_proj.weight"].scheme.capitalize()
        assert "128x128" in opened["l.0.k_proj.weight"].scheme


@pytest.mark.parametrize("verb", ["forget", "convert"])
def test_a_pattern_that_fits_nothing_names_its_option(model: Path, verb: str) -> None:
    for option, value in (("--include", "x"), ("--exclude", "x"), ("--tensor", "x=f16")):
        done = run(verb, model, "--to", "fp8-block", option, value, code=1)
        assert done.stderr == (
            f"amn: error: model-bf16.safetensors: {option}: no weight matches 'x'\n"
        )
    done = run(verb, model, "--to", "fp8-block", "--rename", "a=b=c", code=1)
    assert done.stderr == (
        "amn: error: model-bf16.safetensors: --rename: no tensor's name matches 'a=b'\n"
    )
    assert list(Path().iterdir()) == [model]


def test_a_batch_goes_on(model: Path) -> None:
    write_safetensors(Path("small.safetensors"), {"norm.weight": bf16(4)})
    done = run("forget", "small.safetensors", model, "--to", "fp8-block", "-o", "out/", code=1)
    assert (
        "amn: error: small.safetensors: no weight of the model suits fp8-block: not a matrix\n"
        in done.stderr
    )
    assert "1 of 2 forgotten, 1 failed:" in done.stdout
    assert sorted(Path("out").iterdir()) == [Path("out/model-fp8.safetensors")]
    again = told("forget", model, "--to", "fp8-block", "-o", "out/", "--skip-existing")
    assert again["skipped"] == "out/model-fp8.safetensors exists"


def test_a_directory_becomes_one_that_declares_its_encoding(model: Path) -> None:
    root = Path("Tiny-BF16")
    write_safetensors(root / "model.safetensors", TENSORS)
    write_index(root, dict.fromkeys(TENSORS, "model.safetensors"))
    (root / "config.json").write_text('{"torch_dtype": "bfloat16"}')
    run("forget", root, "--to", "fp8-block", "-q")
    config = json.loads(Path("Tiny-fp8/config.json").read_text())
    assert config["quantization_config"]["quant_method"] == "fp8"
    run("convert", root, "--to", "gguf", "-q")
    assert Path("Tiny-bf16.gguf").is_file()
    run("convert", root, "--to", "npz", "-o", "out/", "-q")
    assert Path("out/Tiny-bf16.npz").is_file()


# --- convert --------------------------------------------------------------------------------------


def test_convert_to_what_numpy_loads(model: Path) -> None:
    run("convert", model, "--to", "npz-f32")
    with np.load("model-f32.npz") as file:
        loaded = dict(file)
    assert set(loaded) == set(TENSORS)
    for name, (_, shape, raw) in TENSORS.items():
        values = np.frombuffer(raw, ml_dtypes.bfloat16).astype(np.float32).reshape(shape)
        np.testing.assert_array_equal(loaded[name], values)


def test_convert_says_what_it_casts(model: Path) -> None:
    done = run("convert", model, "--to", "f16", "-o", "x.safetensors")
    assert done.stdout.splitlines()[1].startswith("Converting... 4 tensors [=====")
    assert done.stdout.splitlines()[-1] == "  cast 4 tensors from BF16 to F16"
    assert "Lethe distance" not in done.stdout


def test_json_says_which_dtypes_are_written(model: Path) -> None:
    kept = told("convert", model, "--to", "f16", "--no-cast-all", "-o", "x.safetensors")
    assert kept["dtypes"] == {"BF16": 4}
    assert told("convert", model, "--to", "f16", "-o", "y.safetensors")["dtypes"] == {"F16": 4}
    encoded = told("forget", model, "--to", "fp8-block")
    assert encoded["dtypes"] == {"F8_E4M3": 2, "F32": 2, "BF16": 2}
    with an.parse("model-fp8.safetensors") as made:
        assert made.remember(lambda name, array: None).dtypes == {"BF16": 4}


def test_gguf_metadata_come_from_source_file_and_flags(model: Path) -> None:
    keys = dict.fromkeys(("a.source", "a.file", "a.flag", "a.gone"), (STRING, "source"))
    block = Tensor((32,), 8, bytes(34))
    Path("m-Q8_0.gguf").write_bytes(gguf_bytes({**keys, "n": (U32, 1)}, {"w": block}))
    Path("more.json").write_text('{"a.file": "file", "a.flag": "file", "a.gone": null}')
    settings = ("--gguf-kv", "a.flag=flag", "--gguf-kv", "x=float:1")
    run("convert", "m-Q8_0.gguf", "--to", "gguf", "--gguf-metadata", "more.json", *settings)
    parsed = told("parse", "m-Q8_0-copy.gguf", "--metadata")
    assert parsed["tensors"][0]["dtype"] == "Q8_0"
    assert parsed["metadata"] == {
        "a.source": "source",
        "a.file": "file",
        "a.flag": "flag",
        "n": 1,
        "x": 1.0,
    }
    for option in (("--gguf-kv", "a=b"), ("--gguf-metadata", "more.json")):
        done = run("convert", model, "--to", "npz", *option, code=2)
        assert f"{option[0]} is for GGUF files, not npz" in done.stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"a.b": 1, "c": 2, "a.b": 3}', "more.json: has the key 'a.b' twice"),
        ('{"a.b": {"type": "u8", "type": "u8", "value": 1}}', "has the key 'type' twice"),
        ('{"a.b": 1e400}', "more.json: metadata 'a.b': 1e400 is beyond every float"),
        ('{"a.b": {"type": "f64", "value": [0, -1e999]}}', "metadata 'a.b': -1e999 is beyond"),
        ("[1]", "more.json: must hold a JSON object"),
        ('{"a": 1,}', "more.json: not valid JSON: "),
        ("[" * 9000, "more.json: JSON nested too deeply"),
    ],
)
def test_a_file_of_metadata_says_each_thing_once_and_as_it_is(
    model: Path, text: str, told: str
) -> None:
    Path("more.json").write_text(text)
    done = run("convert", model, "--to", "gguf", "--gguf-metadata", "more.json", code=2)
    assert told in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("value", ["1e400", "float:1e400", "[0.5, 1e400]"])
def test_a_setting_beyond_every_float_is_refused(model: Path, value: str) -> None:
    done = run("convert", model, "--to", "gguf", "--gguf-kv", f"a={value}", code=2)
    assert "1e400 is beyond every float" in done.stderr


def test_gguf_is_named_as_its_users_do(model: Path) -> None:
    run("convert", model, "--to", "gguf-int8", "-q")
    with an.parse("model-INT8.gguf") as opened:
        assert opened.stored[Q].dtype.name == "I8"


def test_standard_output(model: Path) -> None:
    done = CliRunner().invoke(cli, ["forget", str(model), "--to", "fp8-block", "-o", "-"])
    assert done.exit_code == 0
    assert done.stdout_bytes == expected(model, "fp8-block")
    assert "Lethe distance: " in done.stderr


@pytest.mark.parametrize(("out", "to"), [("a.npz", "npz"), ("a.pth", "pth"), ("a.GGUF", "gguf")])
def test_the_name_of_the_output_says_the_container(model: Path, out: str, to: str) -> None:
    run("convert", model, "-o", out)
    assert Path(out).read_bytes() == expected(model, to)


@pytest.mark.parametrize(
    ("out", "told"),
    [("a.xyz", "Cannot tell the format from .xyz"), ("b/c", "Cannot tell the format from b/c")],
)
def test_a_name_that_says_no_container_is_told_which_do(model: Path, out: str, told: str) -> None:
    done = run("convert", model, "-o", out, code=2)
    assert f"Missing option '--to'. {told}; use .safetensors, .gguf, .npz" in done.stderr
    assert ".bin, .ckpt, or --to; see " in done.stderr
    assert done.stderr.count("\n") == 1
    assert "tell the format" not in run("convert", model, "-o", "-", code=2).stderr


def test_verify(model: Path) -> None:
    done = run("convert", model, "--to", "int8", "--verify")
    assert "Verified: read back, and equal to a second encoding" in done.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("forget", "--to", "gguf"), "'gguf' quantises nothing; amn remember and amn convert"),
        (("forget", "--to", "fp9"), "there is no encoding 'fp9' (did you mean 'fp8-block'"),
        (("convert", "--to", "fp9"), "there is no target 'fp9' (did you mean 'fp8-block'"),
        (("forget",), "Missing option '--to'"),
        (("convert",), "Missing option '--to'"),
        (("plan",), "Missing option '--to'"),
        (("convert", "--to", "npz", "--include", "*"), "--include says which weights are quant"),
        (("convert", "--to", "f16", "--dtype", "f32"), "the target f16 contradicts --dtype f32"),
        (("convert", "--to", "int8", "--tensor", "int8"), "write PATTERN=ENCODING, not 'int8'"),
        (("convert", "--to", "int8", "--tensor", "*=int9"), "there is no encoding 'int9'"),
        (("convert", "--to", "int8", "--rename", "(=x"), "'(=x': "),
        (("convert", "--to", "gguf", "--gguf-kv", "x"), "write KEY=VALUE or KEY=TYPE:VALUE"),
        (("convert", "--to", "gguf", "--gguf-metadata", "x.json"), "x.json: No such file"),
        (("convert", "--to", "int8", "--worst", "--no-loss"), "--worst shows what --no-loss"),
    ],
)
def test_wrong_usage(model: Path, args: tuple[str, ...], message: str) -> None:
    done = run(args[0], model, *args[1:], code=2)
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(Path().iterdir()) == [model]


def test_no_path_is_wrong_usage() -> None:
    for args in (("forget", "--to", "int8"), ("convert", "--to", "int8")):
        assert "Missing argument 'PATH...'" in run(*args, code=2).stderr


def test_an_output_of_another_format_is_refused(model: Path) -> None:
    done = run("convert", model, "--to", "gguf", "-o", "x.npz", code=1)
    assert "x.npz: has the extension of NPZ, but the target is gguf" in done.stderr


# --- lists and plans ------------------------------------------------------------------------------


def test_lists_have_every_target() -> None:
    shown = run("convert", "--list").stdout.splitlines()
    rows = told("convert", "--list")
    assert {row["name"] for row in rows} == set(names()) - {"torch"}
    assert [line.split()[0] for line in shown[1 : 1 + len(rows)]] == [row["name"] for row in rows]
    assert (
        len({line.index(row["format"], 8) for line, row in zip(shown[1:], rows, strict=False)}) == 1
    )
    schemes = told("forget", "--list")
    of_gguf = {*mixes()} - {"gguf-copy"}
    assert {row["name"] for row in schemes} == {*ENCODINGS, *of_gguf}
    assert all(row["loaders"] for row in rows)
    assert [line.split()[0] for line in run("forget", "--list").stdout.splitlines()[1:-3]] == [
        row["name"] for row in schemes
    ]


def test_a_list_says_what_becomes_of_codes() -> None:
    rows = told("convert", "--list", "--to", "gptq-4bit-32")
    by_source = {row["source"]: row for row in rows}
    assert by_source["gptq-4bit"] == {"source": "gptq-4bit", "way": "moved", "unless": ""}
    assert by_source["awq-4bit"]["unless"].startswith("a zero point is 0")
    assert "F16 in GPTQ" in by_source["int4"]["unless"]
    shown = run("convert", "--list", "--to", "gptq-4bit-32").stdout.splitlines()
    named = [line.split()[0] for line in shown[2:] if line[:1].strip()]
    assert named[: len(rows)] == list(by_source)
    assert "all others  re-quantised" in shown
    assert all(len(line) <= 80 for line in shown)
    moved_only = run("convert", "--list", "--to", "gguf-mxfp4").stdout
    assert "all others      not taken" in moved_only
    done = run("convert", "--list", "--to", "gguf", code=2)
    assert "gguf is not an encoding" in done.stderr


@pytest.mark.parametrize(
    ("synonym", "name"),
    [("fp8-fine-grained", "fp8-block"), ("FP8-Per-Channel", "fp8-channel")],
)
def test_synonyms(synonym: str, name: str) -> None:
    assert target(synonym) == target(name)
    assert target(f"safetensors-{synonym}").encoding == target(name).encoding


def test_every_listed_target_is_one() -> None:
    for row in listed():
        found = target(row.name)
        assert row.format == (found.container or found.usual)
        assert (found.encoding is not None) == (row.kind in ("encoding", "layout"))


def test_plan_says_what_convert_does(model: Path) -> None:
    plan = told("plan", model, "--to", "fp8-block")
    lines = run("plan", model, "--to", "fp8-block").stdout.splitlines()
    assert list(Path().iterdir()) == [model]
    report = told("convert", model, "--to", "fp8-block")
    for key in ("n_in", "n_out", "n_bytes", "dropped", "plain"):
        assert plan[key] == report[key]
    assert plan["encodings"]["fp8-block"] == report["n_encoded"] == 2
    assert lines[0] == "Parsing...    4 tensors, BF16"
    assert lines[1].startswith("Would write: 1 safetensors file, 6 tensors, ")
    assert "  2 weights as fp8-block" in lines
    done = run("plan", model, "--to", "fp8-block", "--include", "x", code=1)
    assert done.stderr.endswith("--include: no weight matches 'x'\n")


# --- parts ----------------------------------------------------------------------------------------


def test_parts_of_gguf(model: Path) -> None:
    line = ("convert", model, "--to", "gguf", "--split-max-size", "100KB")
    done = run("plan", *line[1:])
    assert "Would write: 2 gguf files, 4 tensors, " in done.stdout
    done = run(*line)
    assert "Output: model-bf16-00001-of-00002.gguf (131.9 KB in 2 files)" in done.stdout
    assert not Path("model-bf16.gguf").exists()
    with an.parse("model-bf16-00002-of-00002.gguf") as written:
        assert set(written) == set(TENSORS)
    assert "skipped, model-bf16.gguf exists" in run(*line, "--skip-existing").stdout
    assert (
        "model-bf16-00001-of-00002.gguf: exists; --force replaces it" in run(*line, code=1).stderr
    )
    made = told(*line, "--force")
    assert (made["n_files"], Path(made["output"]).name) == (2, "model-bf16-00001-of-00002.gguf")
    assert "leave --split-max-size out" in run(*line, "-o", "-", code=1).stderr
    done = run("convert", model, "--to", "npz", "--split-max-size", "5GB", code=2)
    assert "--split-max-size is for GGUF files, not npz" in done.stderr
    done = run("convert", model, "--to", "gguf", "--max-shard-size", "5GB", code=1)
    assert "one file is not cut into shards; --split-max-size cuts a GGUF file" in done.stderr


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "word", "extension", "made"),
    [
        ("model-bf16.safetensors", "fp8", ".safetensors", "model-fp8.safetensors"),
        ("model-F16.gguf", "int8", ".safetensors", "model-int8.safetensors"),
        ("model_fp16.pth", "fp8-channel", ".safetensors", "model-fp8-channel.safetensors"),
        ("model-float32.npz", "bf16", ".gguf", "model-bf16.gguf"),
        ("model-fp8.safetensors", "fp8", ".safetensors", "model-fp8-copy.safetensors"),
        ("model-fp8-channel.safetensors", "int8", ".gguf", "model-int8.gguf"),
        ("model-fp8-ue8m0.safetensors", "f16", ".npz", "model-f16.npz"),
        ("model.gguf", None, ".gguf", "model-plain.gguf"),
        ("bf16.safetensors", "fp8", ".safetensors", "bf16-fp8.safetensors"),
        ("turbf16.safetensors", "fp8", ".safetensors", "turbf16-fp8.safetensors"),
        (
            "m-bf16-00001-of-00002.safetensors",
            "fp8",
            ".safetensors",
            "m-fp8-00001-of-00002.safetensors",
        ),
    ],
)
def test_names(name: str, word: str | None, extension: str, made: str) -> None:
    naming = Naming(word, Form(extension[1:]), keeps_dtypes=False)
    assert derived_name(name, naming) == made


def test_a_directory_keeps_no_extension_but_that_of_one_file() -> None:
    fp8 = Naming("fp8", keeps_dtypes=False)
    assert derived_name("Qwen3-BF16", fp8, directory=True) == "Qwen3-fp8"
    gguf = Naming("f16", Form("gguf"), keeps_dtypes=False)
    assert derived_name("Qwen3-0.6B", gguf, directory=True) == "Qwen3-0.6B-f16.gguf"


EXPERTS = "layers.0.mlp.experts"


def test_stacks_of_experts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stacks = {
        f"{EXPERTS}.gate_up_proj": bf16(2, 128, 96),
        f"{EXPERTS}.down_proj": bf16(2, 96, 64),
    }
    write_safetensors(Path("moe.safetensors"), stacks)
    line = "  2 stacks of experts taken apart, into 6 pieces\n"
    assert line in run("plan", "moe.safetensors", "--to", "int8").output
    assert line in run("forget", "moe.safetensors", "--to", "int8").output
    assert told("plan", "moe.safetensors", "--to", "int8")["taken_apart"] == {
        f"{EXPERTS}.gate_up_proj": 4,
        f"{EXPERTS}.down_proj": 2,
    }


def test_a_stack_that_nothing_can_be_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_safetensors(Path("odd.safetensors"), {f"{EXPERTS}.gate_up_proj": bf16(2, 5, 8)})
    done = run("forget", "odd.safetensors", "--to", "int8", code=1)
    assert done.stderr.count("\n") == 1
    assert "no weight of the model suits int8: experts that may be [in, out]" in done.stderr


def test_metadata_of_shards_is_told_of_once(tmp_path: Path) -> None:
    for i in (1, 2):
        one: dict[str, Entry] = {f"model.{i}.weight": ("F32", (2,), bytes(8))}
        name = f"model-{i:05}-of-00002.safetensors"
        write_safetensors(tmp_path / "m" / name, one, {"format": "pt"})
    done = amn("convert", str(tmp_path / "m"), "--to", "gguf-f16", cwd=tmp_path)
    assert "(metadata that GGUF has no place for): format\n" in done.stdout


def test_the_account_fits_a_terminal(tmp_path: Path) -> None:
    assert amn("demo", "gptq", cwd=tmp_path).returncode == 0
    done = amn("remember", "llama-tiny-GPTQ", cwd=tmp_path)
    assert "in 63 tensors (21 weights, 14 zero points, 14 scales, 14 group" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_scheme_is_a_quiet_name_of_to(model: Path) -> None:
    by_scheme = told("forget", model, "--scheme", "fp8-block", "-o", "a.safetensors")
    by_to = told("forget", model, "--to", "fp8-block", "-o", "b.safetensors")
    assert Path(by_scheme["output"]).read_bytes() == Path(by_to["output"]).read_bytes()
    assert "--scheme" not in run("forget", "--help").output
