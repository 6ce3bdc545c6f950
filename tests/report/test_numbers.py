"""What pages count of scales, codes and zeros, against numpy over the same files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import anamnesis as an
from anamnesis.comparing import how_of, input_of
from anamnesis.convert.overview.page import Counted, counted
from helpers.pairs_of_models import llama, weights


def seen(path: Path, threads: int = 2) -> Counted:
    with an.parse(path) as model:
        return counted(input_of(model), how_of(threads, None, None, None))


def powers(values: np.ndarray[Any, Any]) -> Counter[int]:
    found = values.astype(np.float64)[values != 0]
    return Counter(np.floor(np.log2(found)).astype(int).tolist())


def test_scales_and_codes_of_fp8(tmp_path: Path) -> None:
    arrays = weights()
    arrays["model.layers.0.mlp.up_proj.weight"][:9] = 0
    an.convert(llama(tmp_path / "a", arrays), tmp_path / "q", "fp8-block")
    found = seen(tmp_path / "q")
    with an.parse(tmp_path / "q") as model:
        quantised = [tensor for tensor in model.values() if tensor.is_quantized]
        codes = np.concatenate(
            [np.frombuffer(tensor.parts[0].read(), np.uint8) for tensor in quantised]
        )
        scales = np.concatenate([tensor.parts[1].numpy().reshape(-1) for tensor in quantised])
        zeros = sum(int((tensor.numpy() == 0).sum()) for tensor in quantised)
    numbers = found.numbers["FP8"]
    assert (numbers.n_codes, numbers.n_last) == (codes.size, int(((codes & 0x7F) == 0x7E).sum()))
    assert numbers.n_last > 0
    assert numbers.scales == powers(scales)
    assert found.zeros["FP8"] == (zeros, codes.size)
    assert seen(tmp_path / "q", threads=1) == found


@pytest.mark.parametrize(("to", "kind"), [("mxfp4", np.uint8), ("nvfp4", ml_dtypes.float8_e4m3fn)])
def test_scales_in_bytes_are_what_they_mean(tmp_path: Path, to: str, kind: type) -> None:
    an.convert(llama(tmp_path / "a"), tmp_path / "q", to)
    (numbers,) = (one for one in seen(tmp_path / "q").numbers.values() if one.scales)
    with an.parse(tmp_path / "q") as model:
        raw = [
            part.read()
            for tensor in model.values()
            for role, part in zip(tensor.roles, tensor.parts, strict=True)
            if role == "scales"
        ]
    values: np.ndarray[Any, Any] = np.frombuffer(b"".join(raw), kind)
    wanted = Counter((values.astype(int) - 127).tolist()) if kind is np.uint8 else powers(values)
    assert numbers.scales == wanted
