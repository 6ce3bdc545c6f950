"""torchao's classes in pickles that torchao made, read without torch: the seeds of a fuzzer."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

import anamnesis as an

SEEDS = Path(__file__).parents[2] / "fuzz" / "corpus" / "fuzz_pth"
READ = {
    "torchao-integers": {"a.weight": "Int8Tensor", "b.weight": "IntxUnpackedToInt8Tensor"},
    "torchao-floats": {
        "a.weight": "Float8Tensor",
        "b.weight": "MXTensor",
        "c.weight": "NVFP4Tensor",
    },
    "torchao-settings": {"w": "Float8Tensor"},
}
# The first 16 digits of SHA-256 of what torchao 0.12 itself dequantised to BF16.
OF_TORCHAO_0_12 = {
    "int8": "49bcfc6e1f39e5c2",
    "int8-groups": "812e5a5659709be6",
    "int8-dynamic": "f85897ae0649e94e",
    "int4-dynamic": "cc15fee587306cf3",
    "float8": "fe9339f0b3f5ee00",
    "intx": "42100e0a7c827bdd",
}


@pytest.mark.parametrize("ending", ["", "-legacy"])
@pytest.mark.parametrize("seed", READ)
def test_are_read(seed: str, ending: str) -> None:
    with an.parse(SEEDS / f"{seed}{ending}") as model:
        assert not model.problems
        told = {name: json.loads(str(text)) for name, text in model.metadata.items()}
        assert {name: data["_type"] for name, data in told.items()} == READ[seed]
        for name in READ[seed]:
            assert model[name].numpy("f32").shape == model[name].shape


def test_settings_are_told_as_torchao_does() -> None:
    with an.parse(SEEDS / "torchao-settings") as model:
        told = json.loads(str(model.metadata["w"]))
    settings = told["_data"]["act_quant_kwargs"]
    assert settings["_type"] == "QuantizeTensorToFloat8Kwargs"
    assert settings["_data"]["granularity"] == {"_type": "PerRow", "_data": {"dim": -1}}
    assert settings["_data"]["mm_config"] == told["_data"]["mm_config"]
    assert told["_data"]["kernel_preference"] == {"_type": "KernelPreference", "_data": "TORCH"}
    assert told["_data"]["dtype"] == {"_type": "torch.dtype", "_data": "bfloat16"}


def test_plain_classes_that_torchao_no_longer_has() -> None:
    with an.parse(SEEDS / "torchao-0.12-plain") as model:
        found = {name: model[name].numpy("bf16") for name in model if name != "uintx"}
    digests = {name: sha256(array.tobytes()).hexdigest()[:16] for name, array in found.items()}
    assert digests == OF_TORCHAO_0_12


def test_classes_that_torchao_no_longer_has() -> None:
    """What is packed in their own ways is listed, and stops a conversion by its name."""
    path = SEEDS / "torchao-0.12-plain"
    with an.parse(path) as model:
        assert {name: str(error) for name, error in model.problems.items()} == {
            "uintx": f"{path}: tensor 'uintx' cannot be read: it is torchao's "
            "AffineQuantizedTensor, which torchao no longer has; quantise the model with torchao "
            "0.14 or later"
        }
        with pytest.raises(an.UnsupportedError, match=r"uintx.* AffineQuantizedTensor"):
            model.remember(lambda *_: pytest.fail("a weight came out"))


def test_the_legacy_format_has_them_too() -> None:
    with an.parse(SEEDS / "torchao-0.12-legacy") as model:
        assert not model.problems
        assert model["norm.weight"].numpy("f32").tolist() == [1, 1]
        assert [model[f"{name}.weight"].shape for name in "abc"] == [(2, 32)] * 3


@pytest.mark.parametrize("seed", [*READ, "torchao-0.12-legacy", "torchao-0.12-plain"])
def test_scan_knows_them(seed: str) -> None:
    found = an.scan(SEEDS / seed)
    assert found.verdict == "safe"
    (note,) = found.notes
    assert "add_safe_globals" in note
    assert note in str(found)
    assert found.to_dict()["notes"] == [note]


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("torchao.quantization", "quantize_"),
        ("torchao", "quantization"),
        ("torchao.quantization", "Float8Tensor.from_hp"),
        ("torchao.utils", "Float8Tensor"),
        ("torchao.quantization.quant_api", "_load_and_run"),
    ],
)
def test_nothing_else_of_torchao_is_known(module: str, name: str) -> None:
    raw = b"c" + f"{module}\n{name}\n".encode() + b"."
    assert an.scan(raw).verdict != "safe"
    assert not an.scan(raw).notes
