"""Conversions whose bytes cannot depend on how they are cut, or on where they were stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

import anamnesis as an
from anamnesis.schemes.core.bands import cut_into


def files(output: Path) -> dict[str, bytes]:
    """Return what a file holds, or each of a directory."""
    paths = sorted(output.iterdir()) if output.is_dir() else [output]
    return {path.name if output.is_dir() else "": path.read_bytes() for path in paths}


def converted_alike(source: Path, to: str, whole: Path) -> an.Report:
    """Convert; any bands and threads, and a run that was stopped and resumed, give the same."""
    other, resumed = whole.with_name("other"), whole.with_name("resumed")
    with an.parse(source) as model:
        report = model.convert(whole, to, threads=1, verify=True)
        for n_bytes, threads in ((1, 8), (1 << 10, 1), (40_000, 8), (1 << 17, 3)):
            with cut_into(n_bytes):
                again = model.convert(other, to, threads=threads, force=True)
            assert files(other) == files(whole), (n_bytes, threads)
            assert again.loss == report.loss

        def stop(done: int, total: int) -> None:
            if 2 * done > total:
                raise KeyboardInterrupt

        with cut_into(1 << 12):
            with pytest.raises(KeyboardInterrupt):
                model.convert(resumed, to, progress=stop, threads=1)
            model.convert(resumed, to, resume=True)
    assert files(resumed) == files(whole)
    return report
