"""Directories of shards, with and without an index."""

from __future__ import annotations

from pathlib import Path

import pytest

import anamnesis as an
from helpers.checkpoints import FIRST, SECOND, A, B, left_out, two_shards
from helpers.handmade import Entry, write_index, write_safetensors


def test_with_an_index(root: Path) -> None:
    two_shards(root)
    write_index(root, {"a": FIRST, "b": SECOND})
    with an.parse(root) as model:
        assert list(model) == ["a", "b"]
        assert model["b"].numpy() == [2.0]
        assert model.inspect().files == 2


def test_an_index_opens_its_directory(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_shards(root)
    index = write_index(root, {"a": FIRST, "b": SECOND})
    monkeypatch.chdir(root)
    for where in (index, str(index), index.name):
        with an.parse(where) as model:
            assert list(model) == ["a", "b"]
            assert model.inspect().files == 2


def test_an_index_that_is_not_there(root: Path) -> None:
    two_shards(root)
    with pytest.raises(FileNotFoundError):
        an.parse(root / "model.safetensors.index.json")


def test_without_an_index(root: Path) -> None:
    two_shards(root)
    with an.parse(root) as model:
        assert list(model) == ["a", "b"]


def test_path_as_text(root: Path) -> None:
    two_shards(root)
    assert len(an.parse(str(root))) == 2


def test_index_in_a_subfolder(root: Path) -> None:
    write_safetensors(root / "deep" / "x.safetensors", A)
    write_index(root, {"a": "deep/x.safetensors"})
    assert list(an.parse(root)) == ["a"]


@pytest.mark.parametrize(
    "weight_map",
    [
        {"a": "old-00001-of-00001.safetensors"},
        {"a": "old-00001-of-00002.safetensors", "b": "old-00002-of-00002.safetensors"},
        {"a": FIRST, "b": "old.safetensors"},
        {},
    ],
    ids=["another file", "other files", "one other file", "nothing"],
)
def test_stale_index(root: Path, weight_map: dict[str, str]) -> None:
    two_shards(root)
    write_index(root, weight_map)
    assert set(an.parse(root)) == {"a", "b"}


def test_missing_shard_of_an_index(root: Path) -> None:
    write_safetensors(root / FIRST, A)
    write_index(root, {"a": FIRST, "b": SECOND, "c": SECOND})
    with pytest.raises(an.ParseError, match=f"{SECOND} is missing.*'b'; 2 tensors"):
        an.parse(root)


def test_missing_shard_that_is_named_is_the_one_of_the_tensor(root: Path) -> None:
    write_safetensors(root / "x.safetensors", A)
    write_index(root, {"a": "gone.safetensors", "b": "x.safetensors", "c": "zone.safetensors"})
    with pytest.raises(an.ParseError, match=r"zone\.safetensors is missing.*'c'"):
        an.parse(root)


@pytest.mark.parametrize("n", ["00001", "00002", "00003"])
def test_gap_in_the_numbering(root: Path, n: str) -> None:
    for i in {"00001", "00002", "00003"} - {n}:
        write_safetensors(root / f"model-{i}-of-00003.safetensors", {i: A["a"]})
    with pytest.raises(an.ParseError, match=f"model-{n}-of-00003.safetensors is missing"):
        an.parse(root)


def test_gap_in_the_numbering_beside_a_stale_index(root: Path) -> None:
    write_safetensors(root / "output-00001-of-00002.safetensors", A)
    write_index(root, {"a": "model.safetensors"})
    with pytest.raises(an.ParseError, match="output-00002-of-00002"):
        an.parse(root)


def test_numbering_of_a_hundred_thousand(root: Path) -> None:
    """Missing ones are noticed at the first, present ones are looked up, not searched."""
    for i in range(1, 500):
        write_safetensors(root / f"m-{i:05d}-of-99999.safetensors", {str(i): A["a"]})
    with pytest.raises(an.ParseError, match="m-00500-of-99999"):
        an.parse(root)


def test_index_of_many_missing_shards(root: Path) -> None:
    """Each tensor's shard is looked up, not searched."""
    write_safetensors(root / "x.safetensors", A)
    missing = {f"t{i}": f"s{i}.safetensors" for i in range(50_000)}
    write_index(root, {"a": "x.safetensors", **missing})
    with pytest.raises(an.ParseError, match="50,000 tensors are missing"):
        an.parse(root)


def test_twins_without_an_index(root: Path) -> None:
    write_safetensors(root / "x.safetensors", A)
    write_safetensors(root / "y.safetensors", {**A, **B})
    with pytest.raises(an.ParseError, match=r"'a' is in both x\.safetensors and y\.saf.*move away"):
        an.parse(root)


@pytest.mark.parametrize(("holder", "value"), [("x.safetensors", 1.0), ("y.safetensors", 2.0)])
def test_twins_with_an_index(root: Path, holder: str, value: float) -> None:
    write_safetensors(root / "x.safetensors", A)
    write_safetensors(root / "y.safetensors", {"a": B["b"], "c": A["a"]})
    write_index(root, {"a": holder, "c": "y.safetensors"})
    model = an.parse(root)
    assert model["a"].numpy() == [value]
    loser = "y.safetensors" if holder == "x.safetensors" else "x.safetensors"
    assert left_out(model) == {f"a in {loser}": "the index names another shard for it"}


def test_twins_with_an_index_that_names_a_third(root: Path) -> None:
    write_safetensors(root / "x.safetensors", A)
    write_safetensors(root / "y.safetensors", A)
    write_index(root, {"a": "z.safetensors"})
    with pytest.raises(an.ParseError, match="no index says which to use"):
        an.parse(root)


@pytest.mark.parametrize("with_index", [False, True])
def test_scale_in_another_shard(root: Path, with_index: bool) -> None:
    write_safetensors(root / FIRST, {"a.weight_scale_inv": ("F32", [], B["b"][2])})
    write_safetensors(root / SECOND, {"a.weight": ("F8_E4M3", [2], b"\x38\x40")})
    if with_index:
        write_index(root, {"a.weight": SECOND, "a.weight_scale_inv": FIRST})
    model = an.parse(root)
    assert list(model) == ["a.weight"]
    assert model["a.weight"].numpy().tolist() == [2.0, 4.0]


@pytest.mark.parametrize("n_present", [0, 1])
def test_half_a_download(root: Path, n_present: int) -> None:
    """An index none or some of whose shards are there, beside weights that it does not know."""
    write_safetensors(root / "visual.safetensors", A)
    names = [FIRST, SECOND]
    for name in names[:n_present]:
        write_safetensors(root / name, {f"in {name}": A["a"]})
    write_index(root, {f"in {name}": name for name in names})
    with pytest.raises(an.ParseError, match=f"{names[n_present]} is missing") as raised:
        an.parse(root)
    assert ("remove it if it is stale" in str(raised.value)) == (n_present == 0)


def test_index_of_the_model_before_it_was_quantised(root: Path) -> None:
    """What became codes is there, and so is what newer code computes."""
    qweight: Entry = ("I32", [1, 8], bytes(32))
    packed: dict[str, Entry] = {
        "m.qweight": qweight,
        "m.qzeros": ("I32", [1, 1], bytes(4)),
        "m.scales": ("F16", [1, 8], bytes(16)),
        "m.g_idx": ("I32", [8], bytes(32)),
    }
    write_safetensors(root / "model.safetensors", packed)
    old = {"m.weight": FIRST, "m.rotary_emb.inv_freq": SECOND}
    write_index(root, old)
    an.parse(root)
    write_index(root, {**old, "n.weight": SECOND})
    with pytest.raises(an.ParseError, match=r"'n\.weight'; 1 tensor is"):
        an.parse(root)


@pytest.mark.parametrize("lost", ["c.txt", "a.qweight"])
def test_index_of_a_tensor_that_its_shard_lacks(root: Path, lost: str) -> None:
    two_shards(root)
    (root / "c.txt").write_text("a file that is called as the tensor is")
    index = write_index(root, {"a": FIRST, "b": SECOND, lost: SECOND, "x.inv_freq": FIRST})
    with pytest.raises(
        an.ParseError, match=f"{SECOND} has no tensor '{lost}'.*1 tensor is"
    ) as said:
        an.parse(root)
    assert "remove the index" in str(said.value.remedy)
    index.unlink()
    assert set(an.parse(root)) == {"a", "b"}


def test_index_that_names_a_tensor_twice(root: Path) -> None:
    two_shards(root)
    index = write_index(root, {"a": FIRST, "b": SECOND})
    index.write_text(f'{{"weight_map": {{"a": "{FIRST}", "b": "{SECOND}", "a": "{SECOND}"}}}}')
    with pytest.raises(an.ParseError, match=r"index\.json: .*'a' appears twice"):
        an.parse(root)


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ({"a": ("F16", [1], b"\0\0")}, "a second copy of the model in another precision"),
        ({"a": ("F32", [2], bytes(8)), "c": A["a"]}, "other weights than the model's"),
        ({"c": A["a"]}, "other weights than the model's"),
    ],
)
def test_a_whole_model_beside_the_shards_of_an_index(
    root: Path, tensors: dict[str, Entry], reason: str
) -> None:
    two_shards(root)
    write_index(root, {"a": FIRST, "b": SECOND})
    write_safetensors(root / "model.safetensors", tensors)
    write_safetensors(root / "visual.safetensors", {"v": A["a"]})
    with an.parse(root) as model:
        assert set(model) == {"a", "b", "v"}  # a part beside them, under another name, stays
        why = "an index names other files as the model"
        assert left_out(model) == {"model.safetensors": f"{reason}; {why}"}
        assert ("model.safetensors is left out" in str(model.inspect())) == (reason[:5] == "other")
        noted = model.convert(root.parent / "out").warnings
        assert any("model.safetensors is left out" in said for said in noted) == (
            reason[:5] == "other"
        )


def test_no_weights(root: Path) -> None:
    (root / "config.json").write_text("{}")
    with pytest.raises(an.ParseError, match=r"no \.safetensors file"):
        an.parse(root)


def test_broken_shard_is_named(root: Path) -> None:
    two_shards(root)
    (root / SECOND).write_bytes(b"\2\0\0\0\0\0\0\0{]")
    with pytest.raises(an.ParseError, match=SECOND) as raised:
        an.parse(root)
    assert raised.value.offset == 9
