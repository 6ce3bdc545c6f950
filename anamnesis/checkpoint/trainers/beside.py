"""What goes with a trainer's weights: the config, the tokenizer, and the like."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from anamnesis.base.errors import ParseError
from anamnesis.base.limits import Budget
from anamnesis.checkpoint.file_names import CONFIG_NAME, is_index
from anamnesis.checkpoint.json_file import read_json

_ENDINGS = (".json", ".txt", ".model", ".jinja", ".md")


def beside(folder: str, budget: Budget) -> dict[str, Any]:
    """Return a folder's config and other files, in the fields that `Checkpoint` has."""
    root = Path(folder)
    if not (root / CONFIG_NAME).is_file():
        raise ParseError(f"has no {CONFIG_NAME}", source=folder)
    names = sorted(entry.name for entry in os.scandir(root) if entry.is_file())
    others = [name for name in names if name.endswith(_ENDINGS) and not is_index(name)]
    return {
        "root": root,
        "config": read_json(root / CONFIG_NAME, budget),
        "has_config": True,
        "sidecars": [name for name in others if name != CONFIG_NAME],
    }
