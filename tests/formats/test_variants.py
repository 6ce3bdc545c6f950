"""A directory that holds its model twice: `model.fp16.safetensors` beside `model.safetensors`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import anamnesis as an
from anamnesis.checkpoint.model_files import variants
from helpers.checkpoints import left_out
from helpers.handmade import write_index

PRECISE = {"a": np.ones((2, 2), np.float32), "b": np.zeros(3, np.float32)}
HALF = {name: array.astype(np.float16) for name, array in PRECISE.items()}
COPY = "a second copy of the model in another precision; variant='fp16' takes it"


def write(root: Path, name: str, tensors: dict[str, np.ndarray]) -> None:
    root.mkdir(exist_ok=True)
    an.save(tensors, root / name)


@pytest.mark.parametrize("stem", ["model", "diffusion_pytorch_model", "umt5"])
def test_the_plain_one_is_the_model_and_a_word_chooses(root: Path, stem: str) -> None:
    write(root, f"{stem}.safetensors", PRECISE)
    write(root, f"{stem}.fp16.safetensors", HALF)
    with an.parse(root) as model:
        assert {t.dtype.name for t in model.stored.values()} == {"F32"}
        assert left_out(model) == {f"{stem}.fp16.safetensors": COPY}
    with an.parse(root, variant="fp16") as model:
        assert {t.dtype.name for t in model.stored.values()} == {"F16"}
        assert left_out(model) == {f"{stem}.safetensors": "another variant was asked for"}
        model.convert(root.parent / "out")
    assert [path.name for path in (root.parent / "out").glob("*.safetensors")] == [
        f"{stem}.safetensors"
    ]


@pytest.mark.parametrize("pattern", ["model.fp16-{}.safetensors", "model-{}.fp16.safetensors"])
@pytest.mark.parametrize(
    "index", ["model.safetensors.index.fp16.json", "model.fp16.safetensors.index.json"]
)
def test_variants_in_shards(root: Path, pattern: str, index: str) -> None:
    plain = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    half = [pattern.format(f"0000{n}-of-00002") for n in (1, 2)]
    for names, tensors in ((plain, PRECISE), (half, HALF)):
        for name, tensor in zip(names, tensors, strict=True):
            write(root, name, {tensor: tensors[tensor]})
    write_index(root, dict(zip("ab", plain, strict=True)))
    write_index(root, dict(zip("ab", half, strict=True))).rename(root / index)
    write_index(root, dict(zip("ab", plain, strict=True)))
    with an.parse(root) as model:
        assert {t.dtype.name for t in model.stored.values()} == {"F32"}
        gone = dict.fromkeys(half, COPY)
        assert left_out(model) == gone | {index: "an index of files that are left out or missing"}
    with an.parse(root, variant="fp16") as model:
        assert {t.dtype.name for t in model.stored.values()} == {"F16"}
        model.convert(root.parent / "out")
    written = {path.name for path in (root.parent / "out").iterdir()}
    assert written == {*plain, "model.safetensors.index.json"}
    assert len(an.parse(root.parent / "out")) == 2


def test_a_variant_of_other_weights_is_said(root: Path) -> None:
    write(root, "model.safetensors", PRECISE)
    write(root, "model.ema.safetensors", {"a": PRECISE["a"] + 1, "b": PRECISE["b"]})
    with an.parse(root) as model:
        assert model["a"].numpy().max() == 1
        (said,) = model.convert(root.parent / "out").warnings
        assert said.startswith("model.ema.safetensors is left out, and holds weights of the same")


def test_a_part_under_such_a_name_stays_a_part(root: Path) -> None:
    write(root, "model.safetensors", PRECISE)
    write(root, "model.visual.safetensors", {"v": PRECISE["a"]})
    assert set(an.parse(root)) == {"a", "b", "v"}


def test_a_variant_alone_is_the_model(root: Path) -> None:
    write(root, "model.fp16.safetensors", HALF)
    assert set(an.parse(root)) == {"a", "b"}


@pytest.mark.oracle
def test_the_plain_one_may_be_torchs(root: Path) -> None:
    torch = pytest.importorskip("torch")
    write(root, "diffusion_pytorch_model.fp16.safetensors", HALF)
    stored = {name: torch.tensor(array) for name, array in PRECISE.items()}
    torch.save(stored, root / "diffusion_pytorch_model.bin")
    with an.parse(root) as model:
        assert {t.dtype.name for t in model.stored.values()} == {"F32"}
        assert left_out(model) == {"diffusion_pytorch_model.fp16.safetensors": COPY}


def test_a_variant_that_cannot_be_read_is_left_out(root: Path) -> None:
    write(root, "model.safetensors", PRECISE)
    (root / "model.fp16.safetensors").write_bytes(b"\0" * 20)
    (reason,) = left_out(an.parse(root)).values()
    assert reason.startswith("cannot be read: ")


def test_a_variant_that_is_not_there(root: Path) -> None:
    write(root, "model.safetensors", PRECISE)
    with pytest.raises(an.ParseError, match="no weights of variant 'bf16'"):
        an.parse(root, variant="bf16")
    with pytest.raises(an.ParseError, match="one file, which has no variant 'bf16'"):
        an.parse(root / "model.safetensors", variant="bf16")


@pytest.mark.parametrize("other", ["Qwen2.5.safetensors", "model-fp16.safetensors", "fp16.bin"])
def test_what_is_no_variant(other: str) -> None:
    assert variants(["Qwen2.safetensors", "model.safetensors", other]) == {}
