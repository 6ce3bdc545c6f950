"""The Python of the site's page, run here: with the C modules, or as a script without them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

PROJECT = Path(__file__).parents[2]


def page() -> ModuleType:
    """Return the module, imported anew."""
    spec = spec_from_file_location("page", PROJECT / "web" / "page.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def as_array(raw: bytes) -> Any:
    """Return bytes as the page gets them from JavaScript."""
    return SimpleNamespace(to_bytes=lambda: raw)


def read(module: ModuleType, slot: str, path: str) -> dict[str, Any]:
    """Return what a slot shows of a file."""
    raw = Path(path).read_bytes()
    name = Path(path).name
    found = module.read_file(slot, name, len(raw), lambda start, stop: as_array(raw[start:stop]))
    return dict(json.loads(found))


def all_shown(paths: Sequence[str]) -> list[Any]:
    """Return what the page shows of each file, and of each beside the one before."""
    module, shown = page(), []
    for i, path in enumerate(paths):
        shown += [read(module, "ab"[i % 2], path), module.compare()]
    return shown


def text_of(html: str) -> str:
    """Return the words of HTML."""
    return " ".join(re.sub(r"<style>.*?</style>|<[^>]+>", " ", html, flags=re.S).split())


if __name__ == "__main__":
    sys.modules["numpy"] = sys.modules["ml_dtypes"] = None  # type: ignore[assignment]
    for name, source in json.load(sys.stdin).items():
        stub = ModuleType(f"anamnesis.{name}")
        exec(source, vars(stub))
        sys.modules[stub.__name__] = stub
    print(json.dumps(all_shown(sys.argv[1:])))
