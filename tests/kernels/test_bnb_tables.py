"""The tables of bitsandbytes' codes are those of the library."""

from __future__ import annotations

import bitsandbytes.functional as library
import numpy as np

from anamnesis import _core
from helpers.kernel_calls import PROJECT, load_by_path

TOOL = load_by_path("tools/derive_bnb.py")


def test_tables_are_derived() -> None:
    """Codebooks, midpoints and steps, to the byte."""
    assert (PROJECT / "csrc/kernels/bnb_tables.c").read_text("utf-8") == TOOL.derive()


def test_steps_say_all() -> None:
    """The 255 where codes begin give all 65,536 entries of the library's table."""
    values = TOOL.step_values()
    table = np.searchsorted(TOOL.begins(), np.arange(TOOL.STEPS), side="right")
    assert np.unique(values).size == TOOL.STEPS
    assert (table == TOOL.library_codes(values)).all()


def test_codebooks_by_code() -> None:
    codebooks = {kind.upper(): library.get_4bit_type(kind, device="cpu") for kind in ("nf4", "fp4")}
    codebooks["dynamic"] = library.create_dynamic_map()
    assert {name: book.numpy().tobytes() for name, book in codebooks.items()} == (
        _core.BNB_CODEBOOKS
    )
