"""What other tools call things, and the line that does it here."""

from __future__ import annotations

from collections.abc import Mapping

from anamnesis.base.plain_json import json_table

USUAL = "amn inspect MODEL shows a model, amn convert MODEL OUT writes it otherwise"

_TABLE = json_table(__file__)
# Words in the place of a command.
VERBS: Mapping[str, str] = _TABLE["verbs"]
# Options of llama.cpp's, mlx-lm's, Optimum's and other tools.
OPTIONS: Mapping[str, str] = _TABLE["options"]
