"""A model as a mapping: nothing is silently missing, parts of it, copies of it, and its end."""

from __future__ import annotations

import io
import pickle
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import import_module
from inspect import signature
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from anamnesis.base.stored import Dropped
from anamnesis.convert.report.report import Report
from anamnesis.convert.request.request import ConvertOptions, MixOptions, RememberOptions, Request
from anamnesis.formats.torch.read import PthMetadata
from anamnesis.opening import ParseOptions
from helpers.handmade import Entry, WriteModel, safetensors_bytes, write_index, write_safetensors

ONE = np.float32(1).tobytes()
LAYERS: dict[str, Entry] = {
    "embed.weight": ("F32", (1,), ONE),
    "layers.0.mlp.up.weight": ("F8_E4M3", (2, 4), b"\x38" * 8),
    "layers.0.mlp.up.weight_scale": ("F32", (1,), ONE),
    "layers.0.mlp.up.input_scale": ("F32", (1,), ONE),
    "layers.0.attn.q.weight": ("BF16", (3,), bytes(6)),
    "layers.1.mlp.up.weight": ("F8_E4M3", (2, 4), b"\x38" * 8),
    "layers.1.mlp.up.weight_scale": ("F32", (1,), ONE),
}
UP = "layers.0.mlp.up.weight"


def npz(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


@pytest.fixture
def mixed() -> Iterator[an.Model]:
    """What has a tensor that cannot be read."""
    with an.parse(npz(a=np.ones(3), b=np.array(["x"]), c=np.zeros(2))) as model:
        yield model


@pytest.fixture
def path(write_model: WriteModel) -> Path:
    return write_model(LAYERS)


# --- what cannot be read ----------------------------------------------------------------------


def test_what_cannot_be_read_is_not_passed_over(mixed: an.Model) -> None:
    assert sorted(mixed) == ["a", "b", "c"]
    assert len(mixed) == 3
    assert "b" in mixed
    assert list(mixed.problems) == ["b"]
    for look in (
        lambda: mixed["b"],
        lambda: mixed.get("b"),
        lambda: dict(mixed),
        lambda: {name: tensor.numpy() for name, tensor in mixed.items()},
        lambda: list(mixed.values()),
        lambda: mixed.state_dict(),
    ):
        with pytest.raises(an.UnsupportedError, match="'b'"):
            look()
    readable = {name: mixed[name].numpy() for name in mixed if name not in mixed.problems}
    assert list(readable) == ["a", "c"]
    with pytest.raises(KeyError):
        mixed["d"]
    assert mixed.get("d") is None


def test_strict(path: Path, mixed: an.Model) -> None:
    raw = npz(a=np.ones(3), b=np.array(["x"]), c=np.array(["y"]))
    with pytest.raises(an.UnsupportedError, match=r"'b'.*\(and 1 more such tensor\)"):
        an.parse(raw, strict=True)
    with an.parse(path, strict=True) as model:
        assert not model.problems


def test_repr_has_names_and_problems(path: Path, mixed: an.Model) -> None:
    shown = repr(mixed)
    assert shown == "<anamnesis.Model of 2 weights, NPZ: 'a', 'c'; 1 unreadable: 'b'>"
    with an.parse(path) as model:
        assert repr(model) == (
            "<anamnesis.Model of 4 weights, safetensors: 'layers.0.mlp.up.weight', "
            "'layers.1.mlp.up.weight', 'embed.weight', 'layers.0.attn.q.weight'>"
        )


def test_repr_is_bounded() -> None:
    names = [f"\x1b[31m{i}" + "n" * 10_000 for i in range(1000)]
    with an.parse(safetensors_bytes(dict.fromkeys(names, ("F32", (1,), ONE)))) as model:
        assert len(repr(model)) < 500
        assert repr(model).isprintable()
        assert "996 more" in repr(model)


# --- some of it -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("include", "exclude", "wanted"),
    [
        (("*.mlp.*",), (), {UP, "layers.1.mlp.up.weight"}),
        (("*.mlp.*",), "layers.1.*", {UP}),
        (("embed.*", "*.attn.*"), (), {"embed.weight", "layers.0.attn.q.weight"}),
        ((), ("*.mlp.*", "embed*"), {"layers.0.attn.q.weight"}),
        (("layers.[01].mlp.up.weigh?",), "*.1.*", {UP}),
        ((UP,), (), {UP}),
        (("layers.0",), (), {UP, "layers.0.attn.q.weight"}),
        (("embed", "layers.1", "layers.2"), (), {"embed.weight", "layers.1.mlp.up.weight"}),
        (("layers",), ("layers.0.a", "layers.1"), {UP, "layers.0.attn.q.weight"}),
    ],
)
def test_select(path: Path, include: tuple[str, ...], exclude: Any, wanted: set[str]) -> None:
    with an.parse(path) as model:
        part = model.select(*include, exclude=exclude)
        assert set(part) == wanted
        assert all(part[name].numpy().tobytes() == model[name].numpy().tobytes() for name in part)
        assert UP in model
        with an.parse(part.remember_to_bytes("f32")) as written:
            assert set(written) == wanted
        stored = set(part.stored) - {"layers.0.mlp.up.input_scale"}
        assert {name.removesuffix("_scale") for name in stored} == wanted
        assert part.inspect().n_quantized == sum("mlp" in name for name in wanted)


def test_select_accounts_for_the_rest(path: Path) -> None:
    with an.parse(path) as model:
        report = model.select("layers.0.*").remember(io.BytesIO())
        reasons = {d.name: d.reason for d in report.dropped}
        assert reasons.pop("layers.0.mlp.up.input_scale") != "outside the selection"
        assert set(reasons.values()) == {"outside the selection"}
        assert set(reasons) == {name for name in LAYERS if not name.startswith("layers.0.")}
        assert (report.n_in, report.n_out) == (4, 2)


def test_what_select_drops_is_dropped_as_asked(path: Path) -> None:
    with an.parse(path) as model:
        part = model.select("layers", drop="*.mlp.*")
        assert list(part) == ["layers.0.attn.q.weight"]
        reasons = {d.name: d.reason for d in part.remember(io.BytesIO()).dropped}
        assert reasons[UP] == reasons[f"{UP}_scale"] == "as asked"
        assert reasons["embed.weight"] == "outside the selection"
        assert part == pickle.loads(pickle.dumps(part)) != model.select("layers")
        with pytest.raises(ValueError, match="drop: no weight matches 'embed'"):
            model.select("layers", drop="embed")
        with pytest.raises(an.UnsupportedError, match="none of the 3 weights is left"):
            model.select("layers", drop=["layers"])


def test_what_is_dropped_by_rule_goes_with_the_weight_beside_it(path: Path) -> None:
    with an.parse(path) as model:
        whole = {d.name: d.reason for d in model.remember(io.BytesIO()).dropped}
        for chosen, is_beside in ((UP, True), ("layers.1", False)):
            report = model.select(chosen).remember(io.BytesIO())
            reasons = {d.name: d.reason for d in report.dropped}
            for name, reason in whole.items():
                assert reasons[name] == (reason if is_beside else "outside the selection")


def test_select_again_and_of_nothing(path: Path, mixed: an.Model) -> None:
    with an.parse(path) as model:
        part = model.select("layers.*").select("*.mlp.*").select(exclude="*.1.*")
        assert set(part) == {UP}
        with pytest.raises(ValueError, match=r"no weight is called \*\.k\.\* without x; there are"):
            model.select("*.k.*", exclude="x")
    assert list(mixed.select("a").problems) == []
    assert mixed.select("a").state_dict()["a"].tolist() == [1, 1, 1]
    with pytest.raises(an.UnsupportedError, match="'b'"):
        mixed.select("b")["b"]
    assert "b" in mixed.select("[ab]")


def test_select_of_a_directory(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    for i in (1, 2):
        part = {name: entry for name, entry in LAYERS.items() if (".1." in name) == (i == 2)}
        write_safetensors(folder / f"model-0000{i}-of-00002.safetensors", part)
    shards = {name: f"model-0000{1 + ('.1.' in name)}-of-00002.safetensors" for name in LAYERS}
    write_index(folder, shards)
    with an.parse(folder) as model:
        model.select("*.1.*").remember(tmp_path / "out")
        model.select("*.mlp.*").remember(tmp_path / "both")
    with an.parse(tmp_path / "out", strict=True) as written:
        assert list(written) == ["layers.1.mlp.up.weight"]
    with an.parse(tmp_path / "both", strict=True) as written:
        assert set(written) == {UP, "layers.1.mlp.up.weight"}


def test_a_state_dict(path: Path) -> None:
    with an.parse(path) as model:
        state = model.state_dict()
        assert {name: array.dtype for name, array in state.items()} == dict.fromkeys(
            model, np.float32
        )
        assert model.state_dict("bf16")[UP].tobytes() == model[UP].numpy("bf16").tobytes()
        assert model.state_dict("bf16", "np").keys() == state.keys()
        with pytest.raises(ValueError, match="'pytorch', 'jax', not 'mlx'"):
            model.state_dict(framework="mlx")  # type: ignore[call-overload]


def test_a_state_dict_keeps_what_is_plain(tmp_path: Path) -> None:
    """As `remember` does: F32 norms are not rounded to BF16, unless that is asked for."""
    norm = np.array([1.000001, 2.5], np.float32)
    ids = np.arange(3)
    wide = np.array([1e-300])
    np.savez(tmp_path / "model.npz", norm=norm, ids=ids, wide=wide)
    with an.parse(tmp_path / "model.npz") as model:
        kept = model.state_dict("bf16")
        assert kept["norm"].dtype == np.float32
        assert np.array_equal(kept["norm"], norm)
        assert kept["ids"].dtype == np.int64
        assert kept["wide"].tolist() == [1e-300]
        cast = model.state_dict("bf16", cast_all=True)
        assert cast["norm"].tobytes() == model["norm"].numpy("bf16").tobytes()
        assert cast["ids"].dtype == np.int64


# --- copies -----------------------------------------------------------------------------------


def test_equal_if_opened_alike(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    with an.parse(path) as model, an.parse(path.name) as other:
        assert model == model == other
        assert hash(model) == hash(other)
        assert model != an.parse(path, select="layers")
        assert model.select("e*") == other.select("e*") != other
        assert model != {}
        path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(an.ParseError):
        an.parse(path)
    raw = safetensors_bytes(LAYERS)
    one = an.parse(raw)
    assert one == one
    assert one != an.parse(raw)
    assert len({one, an.parse(raw)}) == 2


def test_another_file_of_the_path_is_another_model(write_model: WriteModel) -> None:
    path = write_model(LAYERS)
    model = an.parse(path)
    path.unlink()
    write_model({**LAYERS, "more": ("F32", (1,), ONE)})
    assert model != an.parse(path)


def test_pickled_by_its_path(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    limits = an.ParseLimits(max_item_count=1000)
    with an.parse(path.name, select="layers", limits=limits) as model:
        told = pickle.dumps(model.select("0.*", exclude="*.attn.*"))
        monkeypatch.chdir("/")
        copy = pickle.loads(told)
        assert list(copy) == ["0.mlp.up.weight"]
        assert copy == model.select("0.*", exclude="*.attn.*")
    assert copy["0.mlp.up.weight"].numpy().shape == (2, 4)
    for where in (path.read_bytes(), io.BytesIO(path.read_bytes())):
        with pytest.raises(
            TypeError, match=f"from a path can be pickled, not from {type(where).__name__}"
        ):
            pickle.dumps(an.parse(where))


def test_in_a_spawned_process(path: Path, tmp_path: Path) -> None:
    script = tmp_path / "spawn.py"
    script.write_text(
        "import sys\n"
        "from multiprocessing import get_context\n"
        "import anamnesis as an\n"
        "def total(tensor):\n"
        "    return float(tensor.numpy().sum())\n"
        "if __name__ == '__main__':\n"
        "    with an.parse(sys.argv[1]) as model, get_context('spawn').Pool(1) as pool:\n"
        "        print(sum(pool.map(total, model.values())))\n"
    )
    command = [sys.executable, str(script), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(done.stdout) == 17.0


# --- its end ----------------------------------------------------------------------------------


@pytest.mark.parametrize("held", [False, True])
def test_closed(path: Path, held: bool) -> None:
    model = an.parse(path.read_bytes() if held else path)
    tensor, part = model[UP], model.select("*.mlp.*")
    part.close()  # which owns no file
    assert not part.closed
    assert tensor.numpy().shape == tensor[:].shape
    model.close()
    model.close()
    assert model.closed
    assert part.closed
    for read in (
        tensor.numpy,
        lambda: tensor[0],
        lambda: np.asarray(tensor),
        lambda: part[UP].numpy(),
        model.remember_to_bytes,
        part.state_dict,
    ):
        with pytest.raises(ValueError, match=r": the model is closed$"):
            read()
    assert tensor.shape == (2, 4)
    assert model.inspect().n_quantized == 2


def test_closed_files_say_so(path: Path) -> None:
    model = an.parse(path)
    model.close()
    with pytest.raises(ValueError, match=r"model\.safetensors: the file is closed"):
        model[UP].parts[0].source.read_into(0, memoryview(bytearray(4)))


# --- functions --------------------------------------------------------------------------------


def test_functions_beside_the_methods(path: Path, tmp_path: Path) -> None:
    assert an.inspect(path).n_quantized == 2
    assert an.inspect(path, "f32", select="layers.1").n_bytes_out == 32
    report = an.remember(path, tmp_path / "out.safetensors", "f32", select="layers", threads=1)
    assert report.n_out == 3
    with an.parse(path, select="layers") as model:
        assert (tmp_path / "out.safetensors").read_bytes() == model.remember_to_bytes("f32")
    assert an.scan(path).verdict == "safe"
    with pytest.raises(an.OutputError, match="exists"):
        an.remember(path, tmp_path / "out.safetensors")


def test_no_module_is_in_their_way() -> None:
    for module in walk_packages(an.__path__, "anamnesis."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    for name in ("parse", "inspect", "remember", "scan"):
        assert callable(getattr(an, name)), name
    code = (
        "import anamnesis.cli.app, anamnesis as an; assert callable(an.scan); an.remember.__doc__"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_options_are_told_once() -> None:
    """What type checkers know of is what is taken."""
    taken = [p.name for p in signature(an.parse).parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert taken == list(ParseOptions.__annotations__)
    known = set(RememberOptions.__annotations__)
    assert known < set(ConvertOptions.__annotations__)
    fields = set(Request.__dataclass_fields__)
    assert set(ConvertOptions.__annotations__) - fields == {"loss", *MixOptions.__annotations__}
    assert fields - set(ConvertOptions.__annotations__) == {
        "form",
        "encoding",
        "measure",
        "keep_blocks",
        "mix",
        "numbered",
        "spelt",
        "limits",
        "of_images",
    }
    assert not known & set(taken)


@pytest.mark.parametrize("option", ["thread", "dtypes", "Force", "include", "overrides"])
def test_options_that_there_are_not(path: Path, option: str) -> None:
    how: Any = {option: 1}
    with (
        an.parse(path) as model,
        pytest.raises(TypeError, match=f"no option '{option}'; there are"),
    ):
        model.remember_to_bytes("f32", **how)
    with pytest.raises(TypeError, match=option):
        an.remember(path, io.BytesIO(), **how)
    with pytest.raises(TypeError, match=option):
        an.inspect(path, **how)


@pytest.mark.parametrize("stream", [io.StringIO("x"), Path(__file__)])
def test_text(stream: Any) -> None:
    text: Any
    with (
        stream.open(encoding="utf-8") if isinstance(stream, Path) else stream as text,
        pytest.raises(TypeError, match="open the file in binary mode") as raised,
    ):
        an.parse(text)
    assert "\n" not in str(raised.value)


# --- in a notebook ----------------------------------------------------------------------------


class Cells(HTMLParser):
    """Collects text, and the names of tags."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.tags: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert attrs in ([], [("style", "text-align: left")])

    def handle_data(self, data: str) -> None:
        self.text.append(data)


HOSTILE = '<script>alert("1")</script>\x1b[31m&amp;'


def test_html_has_the_facts(path: Path, mixed: an.Model) -> None:
    with an.parse(path) as model:
        cells = Cells(model._repr_html_()).text
        assert {"safetensors", "per-tensor FP8 (E4M3)", "2", "24 B", UP, "[2, 4]"} <= set(cells)
        inspection = Cells(model.inspect()._repr_html_()).text
        assert {"Format", "Quantised"} <= set(inspection)
    assert {"b", "unreadable"} <= set(Cells(mixed._repr_html_()).text)


def test_html_is_escaped_and_bounded() -> None:
    tensors = {f"{HOSTILE}{i}": ("F32", (1,), ONE) for i in range(1000)}
    tensors["n" * 100_000] = tensors[f"{HOSTILE}.weight_scale"] = ("F32", (1,), ONE)
    model = an.parse(safetensors_bytes(tensors))
    for shown in (model, model.inspect()):
        html = shown._repr_html_()
        assert html.isprintable()
        assert len(html) < 30_000
        cells = Cells(html)
        assert cells.tags <= {"table", "caption", "tr", "th", "td"}
    assert f"{HOSTILE}0".replace("\x1b", "\\x1b") in Cells(model._repr_html_()).text


def test_a_scan_is_shown() -> None:
    found = an.scan(b"c<script>\nsystem\n.")
    assert str(found).startswith("scan: ")
    assert "<script>.system" in str(found)
    cells = Cells(found._repr_html_())
    assert cells.tags <= {"table", "caption", "tr", "th", "td"}
    assert "<script>.system" in cells.text
    many = an.scan(b"".join(b"cm%d\nf\n0" % i for i in range(500)) + b"N.")
    assert len(many._repr_html_()) < 30_000
    assert "and 450 more" in Cells(many._repr_html_()).text


def test_metadata_are_shown() -> None:
    values = {"n": 1, "text\x1b": "x"}
    assert repr(PthMetadata(values)) == r"<PthMetadata of 2 keys: 'n', 'text\x1b'>"


def test_a_progress_bar(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with an.parse(path) as model:
        model.remember(io.BytesIO(), progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "100%" in err
    assert "bytes" in err


def test_progress_is_called(path: Path) -> None:
    seen: list[tuple[int, int]] = []
    with an.parse(path) as model:
        model.remember(io.BytesIO(), progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] > 0


def test_a_report_counts_each_reason(path: Path) -> None:
    dropped = tuple(Dropped(name, "one file has no room for it") for name in ("a", "b"))
    report = Report("out", "BF16", 5, 3, 2, 100, 0, dropped)
    assert str(report) == "in 5 tensors, out 3, dropped 2 (one file has no room for it: 2)"


def test_a_progress_bar_in_a_notebook(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Handle:
        def update(self, cell: Any) -> None:
            shown.append(cell._repr_html_())

    def display(cell: Any, *, display_id: bool) -> Handle:
        assert display_id
        shown.append(cell._repr_html_())
        return Handle()

    package, inner = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    package.get_ipython = lambda: types.SimpleNamespace(kernel=None)  # type: ignore[attr-defined]
    inner.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", inner)
    with an.parse(path) as model:
        n = model.remember(path.with_name("shown.safetensors"), progress=True).n_bytes
    assert shown[0] == "<progress></progress> planning"
    done, total = re.findall(r'value="(\d+)" max="(\d+)"', shown[-1])[0]
    assert 0 < int(done) == int(total) <= n


def test_a_name_that_is_not_there_names_the_nearest(write_model: WriteModel) -> None:
    names = [f"model.layers.{i}.self_attn.{p}_proj.weight" for i in range(2) for p in "qkv"]
    entry: Entry = ("F32", (1,), bytes(4))
    with an.parse(write_model(dict.fromkeys(names, entry))) as model:
        with pytest.raises(KeyError, match=r"did you mean") as caught:
            model["self_attn.q_proj.weight"]
        told = str(caught.value)
        assert told.startswith(
            "'self_attn.q_proj.weight' (did you mean 'model.layers.0.self_attn.q"
        )
        assert told.count("_proj") == 4
        assert caught.value.args == ("self_attn.q_proj.weight",)
        again = pickle.loads(pickle.dumps(caught.value))
        assert (type(again), again.args) == (KeyError, caught.value.args)
        assert model.get("nix") is None
        with pytest.raises(KeyError, match=r"^3$"):
            model[3]  # type: ignore[index]
