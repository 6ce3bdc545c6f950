"""What a torch file stores and no name leads to is listed, and refused by name and size."""

from __future__ import annotations

import struct
from typing import Any, cast

import numpy as np
import pytest
import torch

import anamnesis as an
from helpers.pickle_handmade import zipped
from helpers.torch_cases import loaded, saved

HEAD = b"\x80\x02"
VALUES = np.arange(4, dtype=np.float32).tobytes()
ARRAY = (
    b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\0tC\x01btR"
    b"(K\x01(K\x02tcnumpy\ndtype\n(X\x02\0\0\0u1\x89\x88tR(K\x03X\x01\0\0\0|NNNJ\xff\xff\xff\xff"
    b"J\xff\xff\xff\xffK\0tb\x89C\x02\x05\x06tb"
)


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def stored(key: str, kind: str = "Float", n: int = 4) -> bytes:
    """Return a reference to a storage."""
    where = b"(" + text("storage") + f"ctorch\n{kind}Storage\n".encode() + text(key) + text("cpu")
    return where + b"K" + bytes([n]) + b"tQ"


def tensor(key: str, kind: str = "Float", n: int = 4) -> bytes:
    """Return a row of a storage."""
    args = stored(key, kind, n) + b"K\0K" + bytes([n]) + b"\x85K\x01\x85\x89"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + args + b"ccollections\nOrderedDict\n)RtR"


def archive(pickled: bytes, *keys: str) -> bytes:
    members = {f"m/data/{key}": VALUES for key in keys}
    rest = {"m/byteorder": b"little", "m/version": b"3\n"}
    return zipped({"m/data.pkl": HEAD + pickled + b".", **members, **rest})


def legacy(pickled: bytes, *keys: str) -> bytes:
    magic = HEAD + b"\x8a\x0a" + (0x1950A86A20F9469CFC6C).to_bytes(10, "little") + b"."
    pickled = pickled.replace(b"tQ", b"NtQ")  # no view of a storage
    head = magic + HEAD + b"M\xe9\x03." + HEAD + b"}." + HEAD + pickled + b"."
    listed = HEAD + b"](" + b"".join(map(text, keys)) + b"e."
    return head + listed + (struct.pack("<q", 4) + VALUES) * len(keys)


KEPT = text("kept") + tensor("0")
LOST = {
    "popped": b"}" + tensor("1") + b"0(" + KEPT + b"u",
    "memoised and popped": b"}" + tensor("1") + b"q\x010(" + KEPT + b"u",
    "popped to a mark": b"}(" + tensor("1") + b"1(" + KEPT + b"u",
    "only its storage": b"}" + stored("1") + b"0(" + KEPT + b"u",
    "a hook of a tensor": b"}("
    + KEPT.replace(b")RtR", b")R" + text("x") + tensor("1") + b"stR")
    + b"u",
    "in the versions of modules": b"ccollections\nOrderedDict\n)R("
    + KEPT
    + b"u}"
    + text("_metadata")
    + tensor("1")
    + b"sb",
}


@pytest.mark.parametrize("make", [archive, legacy])
@pytest.mark.parametrize("kind", LOST)
def test_a_lost_tensor(kind: str, make: Any) -> None:
    data = make(LOST[kind], "0", "1")
    key = "data/1" if make is archive else "1"
    assert list(loaded(data, weights_only=False)) == ["kept"]
    with an.parse(data) as model:
        assert list(model.stored) == ["kept", key]
        assert list(model.problems) == [key]
        told = f"storage '{key}', of 16 bytes, is used by no tensor"
        with pytest.raises(an.UnsupportedError, match=told):
            model.remember_to_bytes()
        out = an.parse(model.remember_to_bytes(allow_unknown=True))
        assert out.stored[key].read() == VALUES


def test_a_member_that_nothing_refers_to() -> None:
    data = archive(b"}(" + KEPT + b"u", "0", "7")
    assert list(an.parse(data).problems) == ["data/7"]


def test_an_empty_storage_is_no_loss() -> None:
    data = zipped({"m/data.pkl": HEAD + b"}(" + KEPT + b"u.", "m/data/0": VALUES, "m/data/1": b""})
    assert list(an.parse(data).stored) == ["kept"]


def test_what_is_beside_the_selection_is_dropped() -> None:
    data = archive(b"}" + tensor("1") + b"0(" + text("m") + b"}(" + KEPT + b"uu", "0", "1")
    with an.parse(data, select="m") as model:
        report = model.remember(lambda *_: None)
    assert [d.name for d in report.dropped] == ["data/1"]


def test_a_name_like_a_storage() -> None:
    data = archive(b"}" + tensor("1") + b"0(" + text("data/1") + tensor("0") + b"u", "0", "1")
    with pytest.raises(an.ParseError, match="a tensor has the name of storage 'data/1'"):
        an.parse(data)


def test_a_lost_array() -> None:
    with an.parse(archive(b"}" + ARRAY + b"0(" + KEPT + b"u", "0")) as model:
        assert list(model.problems) == ["(array 0)"]
    with an.parse(archive(b"}(" + text("x") + ARRAY + b"u")) as model:
        assert model["x"].numpy().tolist() == [5, 6]


@pytest.mark.parametrize(("kind", "n"), [("Half", 8), ("Float", 3), ("Int", 4)])
@pytest.mark.parametrize("make", [archive, legacy])
def test_one_storage_under_two_dtypes(make: Any, kind: str, n: int) -> None:
    """Torch takes the first dtype for both tensors; what was meant nobody can say."""
    data = make(b"}(" + text("a") + tensor("0") + text("b") + tensor("0", kind, n) + b"u", "0")
    with pytest.raises(an.ParseError, match="is declared inconsistently"):
        an.parse(data)


def test_views_of_other_dtypes() -> None:
    """Torch refuses to save them, but for dtypes whose storages it leaves untyped."""
    x = torch.arange(4.0)
    with pytest.raises(RuntimeError, match="different types"):
        saved({"a": x, "b": x.view(torch.float16)})
    u = torch.arange(4, dtype=torch.int16).view(torch.uint16)
    value = {"a": u, "b": u.view(torch.uint32)}
    data = saved(value)
    expected = loaded(data)
    with an.parse(data) as model:
        for name, tensor in expected.items():
            assert model.stored[name].dtype.torch_name == str(tensor.dtype).removeprefix("torch.")
            assert model.stored[name].read() == tensor.numpy().tobytes()


class Views(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.randn(4))
        self.register_buffer("b", self.a.view(torch.int32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.a + self.b


@pytest.mark.filterwarnings("ignore")
def test_views_of_other_dtypes_in_torchscript(tmp_path: Any) -> None:
    path = tmp_path / "views.pt"
    torch.jit.save(torch.jit.script(Views()), path)
    expected = torch.jit.load(path).state_dict()
    with an.parse(path) as model:
        assert {n: t.read() for n, t in model.stored.items()} == {
            n: t.numpy().tobytes() for n, t in expected.items()
        }


BROKEN = {
    "too short": (b"C\x02\x05\x06", b"C\x01\x05"),
    "too long": (b"C\x02\x05\x06", b"C\x03\x05\x06\x07"),
    "data that is text": (b"C\x02\x05\x06", b"X\x02\0\0\0ab"),
    "no shape": (b"(K\x02t", b"N"),
    "a negative shape": (b"(K\x02t", b"(J\xff\xff\xff\xfft"),
    "no dtype": (b"cnumpy\ndtype\n", b"cnumpy\nndarray\n"),
    "a number for a dtype": (b"X\x02\0\0\0u1", b"K\x01"),
    "many dimensions": (b"(K\x02t", b"(" + 70 * b"K\x01" + b"t"),
    "hardly any, of many": (b"(K\x02t", b"(K\0" + 9 * b"J\xff\xff\xff\x7f" + b"t"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_malformed_arrays(kind: str) -> None:
    assert ARRAY.count(BROKEN[kind][0]) == 1
    data = archive(b"}(" + text("x") + ARRAY.replace(*BROKEN[kind]) + b"u")
    with pytest.raises(an.ParseError, match="value 'x': an array"):
        an.parse(data)


def test_values_of_numpys_scalars() -> None:
    values = {
        "f": np.float64(0.25),
        "half": np.float16(0.5),
        "i": np.int64(-3),
        "b": np.bool_(True),
        "big": np.array([7], ">i4")[0],
        "text": np.str_("a"),
        "dtype": np.dtype("f4"),
    }
    for protocol in (2, 3, 4, 5):
        told = dict(an.parse(saved(values, pickle_protocol=protocol), allow_foreign=True).metadata)
        assert {k: told[k] for k in ("f", "half", "i", "b", "big")} == {
            "f": 0.25,
            "half": 0.5,
            "i": -3,
            "b": True,
            "big": 7,
        }
        assert told["text"] == "(one of NumPy's strings)"


def test_lone_surrogates_are_told_as_they_are() -> None:
    value = {"a\ud800": torch.ones(2), "s": "\ud800x", "k\udfff": "v", "l": ["\ud800"]}
    with an.parse(saved(value)) as model:
        assert list(model.stored) == ["a\ud800"]
        assert dict(model.metadata) == {"s": "\ud800x", "k\udfff": "v", "l": ["\ud800"]}
        assert cast(Any, model.metadata).text("s") == "\ud800x"  # the writer escapes it
        assert cast(Any, model.metadata).text("l").encode() == b'["\\ud800"]'
        assert model.inspect().to_dict()


def test_views_of_a_large_storage_are_read_however_scattered() -> None:
    """Each takes as many reads as the file has of 8 KiB; 64 times that is allowed."""
    rows, step = 8192, 8300
    storage = torch.randint(0, 256, (rows * step,), dtype=torch.uint8)
    views = {str(i): storage[i::step][:rows] for i in range(60)}
    assert not any(view.is_contiguous() for view in views.values())
    with an.parse(saved(views)) as model:
        assert model["59"].numpy().tobytes() == views["59"].numpy().tobytes()
