"""Writes the names of parts that layouts have into a file: python tools/part_names.py

They stand in a file of their own, since who parses a model need not import all layouts.
"""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from anamnesis import schemes
from anamnesis.schemes.core.layout import Field

__all__ = ["PAGE", "fields", "made"]

PAGE = Path(__file__).parents[1] / "anamnesis" / "schemes" / "detect" / "part_names.json"

_WEIGHT = "module.weight"


def fields() -> Iterator[tuple[str, tuple[Field, ...]]]:
    """Yield what each layout calls the parts of one weight, and the module that it is of."""
    for module in pkgutil.walk_packages(schemes.__path__, "anamnesis.schemes."):
        if ".layouts" not in module.name and not module.name.endswith(".read"):
            continue
        shown = vars(import_module(module.name)).items()
        for value in [value for name, value in shown if not name.startswith("_")]:
            of_several = list(value.values()) if isinstance(value, dict) else value
            several = of_several if isinstance(of_several, (list, tuple)) else [value]
            lone = tuple(one for one in several if isinstance(one, Field))
            ways = [getattr(one, way, ()) for one in several for way in ("fields", "bare")]
            tuples = [one for one in several if isinstance(one, tuple)]
            for found in (lone, *ways, *filter(_are_fields, tuples)):
                if isinstance(found, tuple) and found:
                    yield module.name, found


def _are_fields(value: tuple[object, ...]) -> bool:
    return all(isinstance(one, Field) for one in value)


def made() -> str:
    """Return the text of the file."""
    names = {field.named(_WEIGHT).rpartition(".")[2] for _, found in fields() for field in found}
    return json.dumps(sorted(names - {"weight"}), indent=0) + "\n"


if __name__ == "__main__":
    PAGE.write_text(made(), encoding="utf-8")
