"""Any encoding: several parts, constants, first passes, grains, losses, declarations."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from anamnesis.base.exact_sum import ExactSum
from anamnesis.schemes.core.bands import cut_into
from anamnesis.schemes.core.encoding import Encoding
from helpers.handmade import write_safetensors
from helpers.toys import in_halves, read_summed

QUANTISED = ("a.weight", "b.weight", "q.weight")


class Stop(Exception):
    """What ends a run."""


def files(path: Path) -> dict[str, bytes]:
    if path.is_file():
        return {"": path.read_bytes()}
    return {p.name: p.read_bytes() for p in path.rglob("*") if p.is_file()}


def whole(rows: Encoding, values: np.ndarray[Any, Any], found: bytes) -> tuple[bytes, bytes]:
    """Encode a matrix at once."""
    from anamnesis.schemes.core.bands import Band
    from anamnesis.schemes.core.codes import Task

    outs = bytearray(values.size), bytearray(4 * len(values))
    views = [memoryview(outs[0]), memoryview(outs[1]), memoryview(bytearray())]
    raw = memoryview(values.tobytes())
    rows.encode(raw, Task(Band(0, values.size), values.shape, found, 0), views)
    return bytes(outs[0]), bytes(outs[1])


@pytest.mark.parametrize(
    "encoding", ["bnb-nf4-nested", "bnb-fp4-nested", "bnb-int8", "gptq-4bit", "awq-4bit"]
)
def test_values_at_which_an_encoder_overflows_are_not_called_infinite(
    encoding: str, tmp_path: Path
) -> None:
    values = np.full((128, 256), 1e-2, np.float32)
    values[0, 0], values[0, 1], values[1] = 3e38, -3e38, 3e38
    entry = ("F32", values.shape, values.tobytes())
    path = write_safetensors(tmp_path / "in.safetensors", {"layers.0.q_proj.weight": entry})
    told = f"q_proj.weight: an infinity or a NaN is in it, or values too large, which {encoding} "
    with an.parse(path) as model, pytest.raises(an.UnsupportedError, match=told):
        model.forget(tmp_path / "out.safetensors", encoding)


def test_forget(model: an.Model, out: Path, rows: Encoding) -> None:
    report = model.forget(out, "toy-rows")
    with an.parse(out) as written:
        stored = dict(written.stored)
        for name in QUANTISED:
            values = model[name].numpy("f32")
            found = np.float32(np.abs(values).max()).tobytes()
            codes, scale = whole(rows, values, found)
            assert stored[name].read() == codes
            assert stored[f"{name}.toy_scale"].read() == scale
            note = json.loads(stored[f"{name}.toy_note"].read())
            assert note == {"largest": float(np.abs(values).max())}
        for name in ("norm.weight", "ids", "lm_head.weight"):
            assert stored[name].dtype is model.stored[name].dtype
            assert stored[name].read() == model.stored[name].read()
    assert len(stored) == report.n_out == 3 * 3 + 3
    assert report.plain == {
        "norm.weight": "not a matrix",
        "ids": "no floats",
        "lm_head.weight": "the output embedding",
    }
    assert report.encoding == rows.id
    assert "3 left plain" in str(report)
    if out.is_dir():
        config = json.loads((out / "config.json").read_bytes())
        assert config == {
            "torch_dtype": "bfloat16",
            "dtype": "bfloat16",
            "quantization_config": {
                "quant_method": "toy",
                "modules_to_not_convert": ["lm_head"],
            },
        }
        index = json.loads((out / "model.safetensors.index.json").read_bytes())
        assert set(index["weight_map"]) == set(stored)
        assert index["metadata"]["total_size"] == sum(t.n_bytes for t in stored.values())
        assert (out / "tokenizer.json").read_text() == "{}"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("band_bytes", [1, 1000, 4096, 1 << 20])
def test_the_same_bytes_and_losses_however_it_is_cut(
    threads: int, band_bytes: int, model: an.Model, out: Path
) -> None:
    other, again = (out.with_name(name + out.suffix) for name in ("other", "again"))
    model.forget(other, "toy-rows", threads=1)
    with cut_into(band_bytes):
        report = model.forget(out, "toy-rows", threads=threads)
        assert files(out) == files(other)
        assert model.forget(again, "toy-rows", threads=1).loss == report.loss


def test_losses(model: an.Model, out: Path, rows: Encoding) -> None:
    report = model.forget(out, "toy-rows")
    assert report.loss is not None
    assert set(report.loss.weights) == set(QUANTISED)
    with an.parse(out) as written:
        for name, loss in report.loss.weights.items():
            values = model[name].numpy("f32").astype(np.float64)
            parts = [written.stored[name + end] for end in ("", ".toy_scale", ".toy_note")]
            reopened = rows.layout.weight(name, values.shape, tuple(parts))
            error = np.abs(values - reopened.values())  # type: ignore[attr-defined]
            assert loss.n == values.size
            assert loss.largest == error.max()
            assert loss.mean == pytest.approx(error.mean(), rel=1e-12)
            assert loss.nmse == pytest.approx((error**2).sum() / (values**2).sum(), rel=1e-12)
            assert loss.nmse is not None
            assert loss.snr_db == pytest.approx(-10 * np.log10(loss.nmse), rel=1e-12)
    total = report.loss.total
    assert total.n == sum(loss.n for loss in report.loss.weights.values())
    assert total.largest == max(loss.largest for loss in report.loss.weights.values())
    told = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert told["loss"]["weights"]["a.weight"]["n"] == 64 * 48
    assert "SNR" in str(report)
    assert model.forget(out, "toy-rows", force=True, loss=False).loss is None
    assert model.remember(out, force=True).loss is None


def test_exact_sums() -> None:
    rng = np.random.default_rng(0)
    values = (rng.normal(size=3000) * 10.0 ** rng.integers(-200, 200, 3000)).tolist()
    found = set()
    for _ in range(3):
        rng.shuffle(values)
        exact = ExactSum()
        for value in values:
            exact.add(value)
        found.add(exact.value)
    import math

    assert found == {math.fsum(values)}
    exact.add(math.inf)
    exact.add(1.0)
    assert exact.value == math.inf


def test_streams_of_several_parts(model: an.Model, out: Path) -> None:
    stream = io.BytesIO()
    report = model.forget(stream, "toy-rows")
    single = out.with_name("single.safetensors")
    assert model.forget(single, "toy-rows").loss == report.loss
    assert stream.getvalue() == single.read_bytes()


@pytest.mark.parametrize("source", ["file"], indirect=True)
def test_parts_in_pieces(model: an.Model, out: Path) -> None:
    report = model.convert(out, in_halves(), exclude=["q.*"])
    with an.parse(out) as written:
        for name in ("a.weight", "b.weight", "lm_head.weight"):
            values = model[name].numpy("f32")
            halves = np.stack(np.split(values, 2, axis=1))
            assert written[name].shape == halves.shape
            assert written[name].numpy().tobytes() == halves.tobytes()
        assert (
            written["q.weight"].numpy("bf16").tobytes() == model["q.weight"].numpy("bf16").tobytes()
        )
    assert report.plain["q.weight"] == "excluded"
    stream = io.BytesIO()
    model.convert(stream, in_halves(), exclude=["q.*"])
    assert stream.getvalue() == out.read_bytes()


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("to", ["toy", "toy-f32", "toy-toy-rows"])
def test_sums_of_parts(to: str, threads: int, model: an.Model, out: Path) -> None:
    path = out.with_name("out.toy")
    model.convert(path, to, threads=threads)
    found = read_summed(path.read_bytes())
    assert ("a.weight.toy_note" in found) == (to == "toy-toy-rows")
    stream = io.BytesIO()
    model.convert(stream, to)
    assert stream.getvalue() == path.read_bytes()
    if to == "toy-f32":
        assert found["q.weight"] == model["q.weight"].numpy("f32").tobytes()
        model.convert(path.with_name("halves"), "toy", overrides={"[ab].weight": in_halves()})
        read_summed(path.with_name("halves").read_bytes())


# --- what is chosen -------------------------------------------------------------------------------


def test_include_exclude_and_overrides(model: an.Model, out: Path) -> None:
    report = model.forget(
        out,
        "toy-rows",
        include=["[ab].*", "lm_head.*"],
        exclude="b.*",
        overrides={"norm.weight": "f32", "q.*": "keep"} if out.suffix else {"norm.weight": "f32"},
    )
    with an.parse(out) as written:
        assert "a.weight.toy_scale" in written.stored
        assert written.stored["b.weight"].dtype.name == "BF16"
        assert written.stored["norm.weight"].dtype.name == "F32"
        if out.suffix:
            for name in ("q.weight", "q.weight_scale_inv"):
                assert written.stored[name].read() == model.stored[name].read()
        else:
            assert written.stored["q.weight"].dtype.name == "BF16"
    assert report.plain["b.weight"] == "excluded"
    assert report.plain["lm_head.weight"] == "the output embedding"
    assert report.plain["norm.weight"] == "as an override asks"
    assert ("q.weight" in report.plain) is not bool(out.suffix)  # its own codes are kept


@pytest.mark.parametrize("source", ["directory"], indirect=True)
def test_two_descriptions_in_one_config(model: an.Model, out: Path) -> None:
    with pytest.raises(an.UnsupportedError, match=r"cannot describe toy-rows.* and what is kept"):
        model.forget(out, "toy-rows", overrides={"q.*": "keep"})
    assert not out.exists()


def test_patterns_that_fit_nothing(model: an.Model, out: Path) -> None:
    for how in ({"include": "x.*"}, {"exclude": ["a.*", "x"]}, {"overrides": {"x": "f32"}}):
        with pytest.raises(ValueError, match="no weight matches 'x"):
            model.forget(out, "toy-rows", **how)
    with pytest.raises(an.UnsupportedError, match="no weight of the model suits"):
        model.forget(out, "toy-rows", include="norm*")
    with pytest.raises(an.UnsupportedError, match=r"'norm\*' asks for: not a matrix"):
        model.convert(out, overrides={"norm*": "toy-rows"})
    with pytest.raises(ValueError, match="no target 'nonsense'"):
        model.convert(out, "nonsense")
    with pytest.raises(ValueError, match="quantises nothing"):
        model.forget(out, "f16")
    with pytest.raises(ValueError, match="rename"):
        model.convert(out, rename={"(": ""})
    with pytest.raises(TypeError, match="nonsense"):
        model.convert(out, nonsense=True)  # type: ignore[call-arg]
    assert not out.exists()


def test_rename(model: an.Model, out: Path) -> None:
    rename = {r"^([abq])\.": r"layers.\1.", "weight": "w"}
    model.forget(out, "toy-rows", rename=rename)
    with an.parse(out) as written:
        assert "layers.a.w.toy_scale" in written.stored
        assert "norm.w" in written.stored
        assert written.stored["ids"].read() == model.stored["ids"].read()
    with pytest.raises(an.UnsupportedError, match="'x'"):
        model.convert(out.with_name("twice.safetensors"), rename={"^.*$": "x"})


def test_a_renaming_that_matches_no_name_is_refused(model: an.Model, out: Path) -> None:
    with pytest.raises(ValueError, match="rename: no tensor's name matches 'nope'"):
        model.forget(out, "toy-rows", rename={"^a": "b", "nope": "x"})
    assert not out.exists()
    model.forget(out, "toy-rows", rename={"^norm": "first", "^first": "second"})
    with an.parse(out) as written:
        assert "second.weight" in written.stored


@pytest.mark.parametrize("name", ["b.weight_scale", "b.comfy_quant", "b.quant_map"])
def test_no_plain_weight_is_called_like_a_part(model: an.Model, out: Path, name: str) -> None:
    with pytest.raises(an.UnsupportedError, match=f"cannot be called '{name}', which is read as"):
        model.convert(out, "bf16", rename={r"^norm\.weight$": name})
    assert not out.exists()
    model.convert(out.with_suffix(".npz"), "npz", rename={r"^norm\.weight$": name}, strict=False)


@pytest.mark.parametrize("source", ["file"], indirect=True)
def test_metadata(model: an.Model, out: Path) -> None:
    model.convert(out, metadata={"note": "mine"})
    with an.parse(out) as written:
        assert written.metadata == {"made": "by hand", "note": "mine"}


def test_the_name_of_the_output_promises_a_container(model: an.Model, tmp_path: Path) -> None:
    for name, to in (("a.toy", None), ("b.TOY", "f32"), ("c.toy", "toy-rows"), ("d", "toy")):
        if to is None:
            report = model.remember(tmp_path / name)
        else:
            report = model.convert(tmp_path / name, to)
        assert report.format == "toy"
        read_summed((tmp_path / name).read_bytes())
    with pytest.raises(an.OutputError, match="extension of safetensors, but the target is toy"):
        model.convert(tmp_path / "x.safetensors", "toy")
    for convert in (model.remember, model.convert):
        with pytest.raises(an.OutputError, match=r"\.jit files cannot be written; name one that"):
            convert(tmp_path / "x.jit")
    assert not list(tmp_path.glob("x*"))


def test_convert_to_a_plain_target_is_remember(model: an.Model, out: Path) -> None:
    targets: dict[str, Any] = {"safetensors": "bf16", "f16": "f16", "safetensors-f32": "f32"}
    for to, dtype in targets.items():
        model.convert(out, to, force=True)
        other = out.with_name("other" + out.suffix)
        model.remember(other, dtype, force=True, cast_all=to != "safetensors")
        assert files(out) == files(other)


# --- checks and plans -----------------------------------------------------------------------------


def test_plan(model: an.Model, out: Path) -> None:
    told = model.plan("toy-rows").to_dict()
    assert not out.exists()
    assert told["encodings"]["toy-rows-2-True"] == 3
    report = model.forget(out, "toy-rows")
    assert told["n_out"] == report.n_out
    assert abs(told["n_bytes"] - report.n_bytes) < 200  # a note's length depends on what is found
    assert told["plain"] == report.plain
    if out.is_dir():
        assert told["config"]["quantization_config"]["quant_method"] == "toy"


def test_verify(model: an.Model, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if out.suffix:  # a directory's config would have to be understood
        model.forget(out, "toy-rows", verify=True)
    model.convert(out.with_name("plain" + out.suffix), verify=True)
    from anamnesis.convert.resume.staging import Staging

    write = Staging.write
    n_written = [0]

    def flipping(self: Staging, name: Any, offset: int, data: bytes | memoryview) -> None:
        n_written[0] += 1
        raw = bytearray(data)
        raw[0] ^= n_written[0] == 6
        write(self, name, offset, bytes(raw))

    monkeypatch.setattr(Staging, "write", flipping)
    with pytest.raises(an.OutputError, match="not what is read back"):
        model.convert(out.with_name("bad" + out.suffix), verify=True)
    assert not out.with_name("bad" + out.suffix).exists()
    assert not list(out.parent.rglob("*.amn-partial"))
