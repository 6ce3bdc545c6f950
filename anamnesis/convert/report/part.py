"""What one process of several did of a conversion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anamnesis.base.printable import format_size, numbered
from anamnesis.convert.report.report import Report


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class PartReport(Report):
    """What making a part did; `n_bytes` is its size, and `n_files` how many files all parts have.

    Attributes
    ----------
    part : str
        `2/4`.
    files, missing : tuple of str
        The files of this part; those of all parts that are not made yet.
    """

    part: str
    files: tuple[str, ...]
    missing: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        names = ("path", "part", "files", "missing", "n_files", "n_bytes", "seconds")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        made = f"{numbered(len(self.files), 'file')} ({format_size(self.n_bytes)})"
        if not self.files:
            made = "nothing, for there are fewer files than parts"
        n = f"{self.n_files - len(self.missing):,} of {numbered(self.n_files, 'file')}"
        return f"Part {self.part}: {made}; {n} made"
