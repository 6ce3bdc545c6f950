"""`amn parse`: the stored tensors, as they lie in the files."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from anamnesis.cli.options import verb

if TYPE_CHECKING:
    from anamnesis.cli.opening import OpenModel


@verb(
    "parse",
    "amn parse model.safetensors",
    "amn parse model.gguf --metadata",
    "amn parse Qwen3-8B-FP8/ --schemes",
    "cat model.gguf | amn parse - --json",
)
def command(
    paths: tuple[str, ...], metadata: bool, schemes: bool, as_json: bool, open_model: OpenModel
) -> None:
    """List the tensors of a model as they are stored."""
    from anamnesis.cli.batch import run_each
    from anamnesis.cli.listing import listing, listing_dict

    width = _terminal_width()

    def work(path: str) -> dict[str, Any]:
        with open_model(path) as model:
            if as_json:
                return listing_dict(model, schemes=schemes)
            for line in listing(model, path, width, metadata=metadata, schemes=schemes):
                print(line)
        return {}

    run_each(paths, work, as_json=as_json)


def _terminal_width() -> int | None:
    """Return the columns of the terminal; None if stdout is none."""
    if not sys.stdout.isatty():
        return None
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except OSError:
        return None
