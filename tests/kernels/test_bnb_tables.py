"""The tables of bitsandbytes' codes are those of the library."""

from __future__ import annotations

import numpy as np
import torch
from bitsandbytes.functional import quantize_blockwise
from kernel_cases import PROJECT, load_by_path

TOOL = load_by_path("tools/derive_bnb.py")


def test_tables_are_derived() -> None:
    """Codebooks, midpoints and steps, to the byte."""
    assert (PROJECT / "csrc/kernels/bnb_tables.c").read_text() == TOOL.derive()


def test_steps_say_all() -> None:
    """The 255 where codes begin give all 65,536 entries of the library's table."""
    values = TOOL.step_values()
    table = np.searchsorted(TOOL.begins(), np.arange(TOOL.STEPS), side="right")
    assert np.unique(values).size == TOOL.STEPS
    assert (table == TOOL.library_codes(values)).all()
    rows = torch.from_numpy(values.reshape(256, 256))
    assert quantize_blockwise(rows[:1], blocksize=256)[0][0, 0] == 0  # it is the library that ran
