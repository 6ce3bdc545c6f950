"""Parse any tensor format, recover any precision.

import anamnesis as an

model = an.parse("model-fp8.safetensors")   # or a directory, bytes, a file object
print(model.inspect())
model.remember("model-bf16.safetensors", dtype="bf16")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from anamnesis.version import __version__

if TYPE_CHECKING:
    from anamnesis.errors import (
        AnamnesisError,
        DisallowedGlobal,
        LimitExceeded,
        OutputError,
        ParseError,
        UnsupportedError,
    )
    from anamnesis.inspection import Inspection
    from anamnesis.limits import ParseLimits
    from anamnesis.model import Model, Tensor, parse
    from anamnesis.report import Report

__all__ = [
    "AnamnesisError",
    "DisallowedGlobal",
    "Inspection",
    "LimitExceeded",
    "Model",
    "OutputError",
    "ParseError",
    "ParseLimits",
    "Report",
    "Tensor",
    "UnsupportedError",
    "__version__",
    "parse",
]

# Imported when first asked for, so that `amn --help` needs none of them.
_HOMES = {
    "AnamnesisError": "errors",
    "DisallowedGlobal": "errors",
    "Inspection": "inspection",
    "LimitExceeded": "errors",
    "Model": "model",
    "OutputError": "errors",
    "ParseError": "errors",
    "ParseLimits": "limits",
    "Report": "report",
    "Tensor": "model",
    "UnsupportedError": "errors",
    "parse": "model",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
