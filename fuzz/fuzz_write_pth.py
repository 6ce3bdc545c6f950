"""A torch file that is written, and read back; see structured_write.py."""

from __future__ import annotations

import io
import pickletools
import zipfile

from structured import Choices
from structured_write import check_written, model
from traced import fuzz


def check(data: bytes) -> None:
    """Raise whatever an input brings out that should not come out."""
    raw = check_written("torch", model(Choices(data), "torch"), {})
    if raw is not None:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            assert archive.testzip() is None
            pickletools.dis(
                archive.read("archive/data.pkl"), io.StringIO()
            )  # checks stack and memo


if __name__ == "__main__":
    fuzz(check)
