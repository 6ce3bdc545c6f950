"""bitsandbytes' parts that lie, are missing, or that two weights could claim."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from exercise import exercise

import anamnesis as an
from anamnesis import _core
from helpers.handmade import Entry, safetensors_bytes

GOOD = {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [4, 64]}
DOUBLE = {**GOOD, "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.5}


def floats(n: int) -> Entry:
    return ("F32", (n,), np.linspace(-1, 1, n, dtype=np.float32).tobytes())


def state(told: Any) -> Entry:
    raw = told if isinstance(told, bytes) else json.dumps(told).encode()
    return ("U8", (len(raw),), raw)


def nf4(
    told: Any = None, name: str = "a.weight", kind: str = "nf4", **parts: Any
) -> dict[str, Any]:
    """A weight of 4 x 64 values; `parts` replace its own, or take them away."""
    tensors: dict[str, Any] = {
        "": ("U8", (128, 1), bytes(range(128))),
        "absmax": floats(4),
        "quant_map": ("F32", (16,), _core.BNB_CODEBOOKS["NF4"]),
        **parts,
        f"quant_state.bitsandbytes__{kind}": state(GOOD if told is None else told),
    }
    return {f"{name}.{k}".rstrip("."): v for k, v in tensors.items() if v is not None}


def double(told: Any = None, **parts: Any) -> dict[str, Any]:
    nested = {
        "absmax": ("U8", (4,), bytes(4)),
        "nested_absmax": floats(1),
        "nested_quant_map": floats(256),
    }
    return nf4(DOUBLE if told is None else told, **{**nested, **parts})


def int8(**parts: Any) -> dict[str, Any]:
    tensors = {"weight": ("I8", (4, 3), bytes(range(12))), "SCB": floats(4), **parts}
    return {f"a.{k}": v for k, v in tensors.items() if v is not None}


def refusal(tensors: dict[str, Entry]) -> an.AnamnesisError:
    """The one problem of a file whose parts are refused together, or left over."""
    model = exercise(safetensors_bytes(tensors))
    assert model is not None
    assert "a.weight" in model.problems or "a.weight" in model._ledger.weights
    (first, *_) = model.problems.values()
    with pytest.raises(an.AnamnesisError):
        model.remember_to_bytes()
    return first


def test_the_good_ones_are_read() -> None:
    for tensors in (nf4(), double(), int8()):
        model = exercise(safetensors_bytes(tensors))
        assert model is not None
        assert not model.problems
        assert len(model) == 1


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"blocksize": 0}, "blocksize of quant_state must be a positive whole number"),
        ({"blocksize": -64}, "blocksize"),
        ({"blocksize": 2**63}, "blocksize"),
        ({"blocksize": 64.0}, "blocksize"),
        ({"blocksize": "64"}, "blocksize"),
        ({"blocksize": True}, "blocksize"),
        ({"blocksize": None}, "blocksize"),
        ({"blocksize": 63}, r"absmax of shape \[4\] .* 256 values in blocks of 63 need 5"),
        ({"blocksize": 128}, "need 2"),
        ({"shape": [4, 65]}, r"128 bytes .* 260 values of 4 bits .* \[4, 65\]"),
        ({"shape": [4, 32]}, r"\[4, 32\]"),
        ({"shape": [2**40, 2**40]}, "a.weight of 128 bytes"),
        ({"shape": [-4, -64]}, "shape"),
        ({"shape": [4.0, 64]}, "shape"),
        ({"shape": [2**63]}, "shape"),
        ({"shape": None}, "shape"),
        ({"shape": "4x64"}, "shape"),
        ({"shape": {}}, "shape"),
        ({"shape": []}, "1 values"),
        ({"shape": [1] * 20_000}, "1 values"),
        ({"quant_type": "fp4"}, "quant_type 'fp4'"),
        ({"quant_type": None}, "quant_type None"),
        ({"quant_type": ["nf4"]}, "quant_type"),
        ({"quant_type": "x" * 60_000}, "quant_type"),
    ],
)
def test_quant_states_that_lie(changes: dict[str, Any], message: str) -> None:
    error = refusal(nf4({**GOOD, **changes}))
    assert isinstance(error, an.ParseError)
    assert len(str(error)) < 400 or len(changes.get("shape") or ()) > 100
    with pytest.raises(an.ParseError, match=message):
        raise error


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"{", b"[1]", b'"x"', b"1", b"null", b"\xff\xfe", b"\0" * 90, b"[" * 60_000),
        b'{"shape":' + b"[" * 30_000 + b"]" * 30_000 + b"}",
        b'{"blocksize":' + b"9" * 60_000 + b"}",
    ],
)
def test_quant_states_that_are_no_json(raw: bytes) -> None:
    assert isinstance(refusal(nf4(raw)), an.ParseError)


def test_a_quant_state_that_is_too_long() -> None:
    error = refusal(nf4(b" " * 65_537))
    assert isinstance(error, an.LimitExceeded)
    assert error.limit == "BNB_MAX_QUANT_STATE"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nested_blocksize": 0}, "nested_blocksize"),
        (
            {"nested_blocksize": 3},
            r"nested_absmax of shape \[1\] .* 4 absmax in blocks of 3 need 2",
        ),
        ({"nested_offset": "0"}, "nested_offset"),
        ({"nested_offset": None}, "nested_offset"),
        ({"nested_offset": 10**400}, "nested_offset"),
    ],
)
def test_double_quant_states_that_lie(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(an.ParseError, match=message):
        raise refusal(double({**DOUBLE, **changes}))


def test_an_offset_beyond_float32_is_infinite_as_in_torch() -> None:
    model = exercise(safetensors_bytes(double({**DOUBLE, "nested_offset": 1e300})))
    assert model is not None
    assert not np.isfinite(model["a.weight"].numpy()).any()


@pytest.mark.parametrize("part", ["absmax", "quant_map", "nested_absmax", "nested_quant_map", ""])
def test_missing_parts(part: str) -> None:
    tensors = (
        double(**{part: None}) if part else {k: v for k, v in double().items() if k != "a.weight"}
    )
    model = exercise(safetensors_bytes(tensors))
    assert model is not None
    assert model.problems


OF_32_BITS: dict[str, Any] = {"": ("I32", (32,), bytes(128))}
A_BYTE_SHORT: dict[str, Any] = {"": ("U8", (127, 1), bytes(127))}


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (nf4(**OF_32_BITS), "a.weight has dtype I32; U8 or"),
        (nf4(**A_BYTE_SHORT), "127 bytes"),
        (nf4(absmax=("U8", (4,), bytes(4))), "absmax has dtype U8; F32 or BF16 or F16"),
        (nf4(absmax=floats(5)), "need 4"),
        (nf4(quant_map=floats(15)), r"quant_map of shape \[15\] .* need 16"),
        (nf4(quant_map=("F16", (16,), bytes(32))), "quant_map has dtype F16"),
        (double(absmax=floats(4)), "absmax has dtype F32; U8"),
        (double(nested_absmax=("F64", (1,), bytes(8))), "nested_absmax has dtype F64"),
        (double(nested_quant_map=floats(16)), "need 256"),
        (double(GOOD), "no nested_blocksize"),
        (int8(SCB=None, weight_format=("U8", (), b"\0")), "weight_format"),
        (int8(SCB=floats(3)), r"SCB of shape \[3\] .* rows of shape \[4, 3\] need 4"),
        (int8(SCB=("F16", (4,), bytes(8))), "SCB has dtype F16"),
        (int8(weight=("U8", (4, 3), bytes(12))), "weight has dtype U8; I8"),
        (int8(weight=("I8", (4, 3, 1), bytes(12))), "not a matrix"),
        (int8(weight_format=("U8", (), b"\1")), "not stored in rows"),
        (int8(weight_format=("U8", (100,), bytes(100))), "not stored in rows"),
    ],
)
def test_parts_that_do_not_fit(tensors: dict[str, Entry], message: str) -> None:
    with pytest.raises(an.AnamnesisError, match=message):
        raise refusal(tensors)


SHARED: dict[str, dict[str, Any]] = {
    "two states of one weight": {**nf4(), **nf4(kind="fp4", told={**GOOD, "quant_type": "fp4"})},
    "an absmax that is a weight": {**nf4(), **nf4(name="a.weight.absmax")},
    "a state that is a weight": {
        **nf4(),
        **nf4(name="a.weight.quant_state.bitsandbytes__nf4"),
    },
    "a state of a state's part": {
        **nf4(),
        **nf4(name="a.weight.quant_state.bitsandbytes__nf4.absmax"),
    },
    "four bits and eight": {**nf4(), "a.SCB": floats(4)},
    "a weight called SCB": {**int8(), **nf4(name="a.SCB")},
    "no name": nf4(name=""),
    "SCB alone": {"SCB": floats(4), "weight": ("I8", (4, 3), bytes(12))},
}


@pytest.mark.parametrize("order", ["forwards", "backwards"])
@pytest.mark.parametrize("name", SHARED)
def test_shared_parts(name: str, order: str) -> None:
    items = list(SHARED[name].items())
    ordered = dict(items if order == "forwards" else items[::-1])
    assert exercise(safetensors_bytes(ordered)) is not None


@pytest.mark.parametrize("told", [{"nested_blocksize": 0}, {"nested_blocksize": None}, {}])
@pytest.mark.parametrize("offset", [0.0, "x", None])
def test_what_is_said_of_nested_absmax_that_are_none(told: dict[str, Any], offset: Any) -> None:
    """bitsandbytes' `from_dict` looks at it only where they are."""
    with an.parse(safetensors_bytes(nf4({**GOOD, **told, "nested_offset": offset}))) as model:
        assert not model.problems
        assert len(model) == 1
