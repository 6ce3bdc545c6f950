"""Rows of padding, which ComfyUI's NVFP4 may have, are never taken for rows of the weight."""

from __future__ import annotations

import numpy as np

from anamnesis.base.dtypes import DTYPES
from anamnesis.schemes.core.arrays import decode, stored
from anamnesis.schemes.families.fp4.formats import FORMATS
from anamnesis.schemes.families.fp4.weight import Fp4Weight
from anamnesis.sources.gathered import RowOrder

F32 = DTYPES["F32"]
KEPT = range(2, 6)


def test_rows_of_padding_are_no_rows() -> None:
    rng = np.random.default_rng(1)
    parts = (
        stored(rng.integers(0, 256, (16, 32), np.uint8), "w", ("U8",)),
        stored(rng.integers(0, 100, (16, 4), np.uint8), "w_scale", ("U8",)),
        stored(np.ones((), np.float32), "w_scale_2", ("F32",)),
    )
    padded = Fp4Weight("w", (10, 64), parts, FORMATS["comfy-nvfp4"], 16, 64)
    made = padded.with_rows("w", (len(KEPT), 64), [padded], RowOrder.of(KEPT, 10, 1))
    if made is not None:
        first, all_rows = (decode(one, F32, None, 1, 0) for one in (made, padded))
        assert (first == all_rows[KEPT.start : KEPT.stop]).all()
