"""Distributed checkpoints: what their metadata may say, and what it may not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from anamnesis.checkpoint.trainers.optimizer import STATE
from helpers.checkpoints import left_out
from helpers.damage import open_damaged
from helpers.dcp_handmade import Piece, described, pickled, placed, thing, write, write_metadata
from helpers.zip_handmade import Member, zip_bytes

WHOLE = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
BOXES = [
    ((0, 0, 0), (2, 4, 2)),
    ((0, 0, 2), (2, 4, 3)),
    ((2, 0, 0), (1, 1, 5)),
    ((2, 1, 0), (1, 3, 5)),
]


def part(offsets: tuple[int, ...], sizes: tuple[int, ...]) -> np.ndarray:
    return np.ascontiguousarray(
        WHOLE[tuple(slice(o, o + n) for o, n in zip(offsets, sizes, strict=True))]
    )


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint of three tensors."""
    pieces = [Piece(offsets, part(offsets, sizes)) for offsets, sizes in BOXES]
    write(
        tmp_path / "dcp",
        {
            "model.cube": (WHOLE.shape, pieces),
            "model.ids": ((3,), [Piece((0,), np.arange(3)), Piece((0,), np.arange(3))]),
            "optim.state": ((2,), [Piece((0,), np.zeros(2, np.float32))]),
        },
    )
    return tmp_path / "dcp"


def test_boxes_of_any_shape_are_joined(checkpoint: Path) -> None:
    with an.parse(checkpoint, select="model") as model:
        assert np.array_equal(model["cube"].numpy(), WHOLE)
        assert model.stored.keys() == {"cube", "ids"}
    with an.parse(checkpoint, select="optim") as model:
        assert model.stored.keys() == {"state"}


@pytest.mark.parametrize(
    "state", ["optimizer_0.state.w", "app.optim.state.w", "train_state.step", "lr_scheduler.last"]
)
def test_the_state_of_a_trainer_is_left_out(tmp_path: Path, state: str) -> None:
    pieces = [Piece((0,), np.zeros(2, np.float32))]
    write(tmp_path / "dcp", {"model.w": ((2,), pieces), state: ((2,), pieces)})
    with an.parse(tmp_path / "dcp") as model:
        assert list(model) == ["model.w"]
        assert left_out(model)[state] == STATE
    with an.parse(tmp_path / "dcp", select=state.rpartition(".")[0]) as model:
        assert len(model) == 1


def test_any_bytes_of_a_tensor_are_read(checkpoint: Path) -> None:
    with an.parse(checkpoint) as model:
        stored, raw = model.stored["model.cube"], WHOLE.tobytes()
        for begin in range(0, len(raw), 7):
            for end in range(begin + 1, len(raw) + 1, 11):
                assert stored.source.read(begin, end - begin) == raw[begin:end]


@pytest.mark.parametrize(
    ("shape", "boxes", "message"),
    [
        ((4,), [((0,), (3,))], "hold 3 values"),
        ((4,), [((0,), (3,)), ((3,), (2,))], "lies outside"),
        ((4,), [((0,), (2,)), ((1,), (2,))], "two pieces hold the element"),
        ((2, 2), [((0,), (4,))], "other dimensions"),
        ((4,), [((0,), (-4,))], "invalid sizes"),
        ((4,), [((0.0,), (4,))], "invalid sizes"),
        ((1 << 40, 1 << 40), [((0, 0), (1, 1))], "no usable shape"),
        ((2, 2), [((0, 0), (2, 1)), ((0, 0), (1, 2))], "hold"),
    ],
)
def test_boxes_that_do_not_fill_a_tensor(
    tmp_path: Path, shape: Any, boxes: Any, message: str
) -> None:
    (tmp_path / "a.distcp").write_bytes(bytes(100))
    where = [placed("w", offsets, "a.distcp", 0, 50) for offsets, _ in boxes]
    write_metadata(tmp_path, {"w": described("float32", shape, boxes)}, where)
    with pytest.raises(an.ParseError, match=message):
        an.parse(tmp_path)


@pytest.mark.parametrize(
    ("where", "error"),
    [
        (("../a.distcp", 0, 50), an.ParseError),
        (("/etc/passwd", 0, 50), an.ParseError),
        (("b.distcp", 0, 50), FileNotFoundError),
        (("a.distcp", 60, 50), an.ParseError),
        (("a.distcp", -1, 50), an.ParseError),
        (("a.distcp", "0", 50), an.ParseError),
        ((3, 0, 50), an.ParseError),
        (("a\ud800", 0, 50), an.ParseError),
    ],
)
def test_places_that_are_none(tmp_path: Path, where: Any, error: type[Exception]) -> None:
    folder = tmp_path / "dcp"
    folder.mkdir()
    for path in (folder / "a.distcp", tmp_path / "a.distcp"):
        path.write_bytes(bytes(100))
    about = {"w": described("float32", (4,), [((0,), (4,))])}
    write_metadata(folder, about, [placed("w", (0,), *where)])
    with pytest.raises(error):
        an.parse(folder)


def test_transforms_are_refused_by_name(tmp_path: Path) -> None:
    about = {"w": described("float32", (4,), [((0,), (4,))])}
    where = [placed("w", (0,), "a.distcp", 0, 50, transform_descriptors=["zstd"])]
    write_metadata(tmp_path, about, where)
    with pytest.raises(an.UnsupportedError, match="zstd"):
        an.parse(tmp_path)


def test_a_piece_of_another_shape_is_an_error(checkpoint: Path) -> None:
    one, other = (checkpoint / f"__{i}_0.distcp" for i in range(2))
    raw = one.read_bytes()
    one.write_bytes(other.read_bytes().ljust(len(raw), b"\0"))
    with an.parse(checkpoint) as model, pytest.raises(an.ParseError):
        model["model.cube"].numpy()


def test_other_classes_are_refused(tmp_path: Path) -> None:
    (tmp_path / ".metadata").write_bytes(pickled(thing("Other", x=1)))
    with pytest.raises(an.DisallowedGlobal):
        an.parse(tmp_path)


def test_one_file_of_pieces_is_no_model(checkpoint: Path) -> None:
    with pytest.raises(an.ParseError, match="name its folder"):
        an.parse(checkpoint / "__0_0.distcp")


@pytest.mark.parametrize("name", [".metadata", "__0_0.distcp"])
def test_damage_is_an_error_or_the_same(checkpoint: Path, name: str) -> None:
    open_damaged(checkpoint, name)


def test_scanned(checkpoint: Path) -> None:
    """Each piece is an archive of its own, behind the one before."""
    for path in checkpoint.iterdir():
        assert an.scan(path).verdict == "safe", path
    pieces = max(checkpoint.glob("*.distcp"))
    raw, hostile = pieces.read_bytes(), zip_bytes([Member(b"a/data.pkl", b"cos\nsystem\n(tR.")])
    for joined in (hostile + raw, raw + hostile, raw + hostile + raw):
        assert an.scan(joined).verdict == "dangerous"
    for broken in (raw[:-1], raw[1:], raw + b"x", raw + hostile[:-9] + raw, raw + b"PK" + raw):
        assert an.scan(broken).verdict != "safe"
