"""Parse any tensor format, recover any precision.

import anamnesis as an

model = an.parse("model-fp8.safetensors")   # or a directory, bytes, a file object
print(model.inspect())
model.remember("model-bf16.safetensors", dtype="bf16")
"""

from __future__ import annotations

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
from anamnesis.version import __version__

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
