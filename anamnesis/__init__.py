"""Parse any tensor format, recover any precision, write any of them.

import anamnesis as an

model = an.parse("model-fp8.safetensors")   # or a directory, bytes, a file object
print(model.inspect())
model.remember("model-bf16.safetensors", dtype="bf16")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from anamnesis.base.version import __version__

if TYPE_CHECKING:
    from anamnesis.as_safetensors import safe_open
    from anamnesis.base.errors import (
        AnamnesisError,
        Cancelled,
        DisallowedGlobal,
        LimitExceeded,
        OutputError,
        ParseError,
        UnsupportedError,
    )
    from anamnesis.base.levels import supported_levels
    from anamnesis.base.limits import ParseLimits
    from anamnesis.base.stored import StoredTensor
    from anamnesis.checking import check
    from anamnesis.comparing import compare
    from anamnesis.convert.check.findings import Check, Finding
    from anamnesis.convert.compare.comparison import Comparison
    from anamnesis.convert.plan.plan import Plan
    from anamnesis.convert.report.html_parts import Page
    from anamnesis.convert.report.inspection import Inspection
    from anamnesis.convert.report.joined import PipelineReport
    from anamnesis.convert.report.report import Report
    from anamnesis.convert.request.recipe import Recipe, read_recipe
    from anamnesis.editing import edit_metadata
    from anamnesis.formats.imatrix import read_imatrix
    from anamnesis.formats.scan.report import Scan
    from anamnesis.formats.scan.scan import scan
    from anamnesis.model import Model
    from anamnesis.opening import (
        convert,
        dequantize,
        detect_format,
        forget,
        inspect,
        parse,
        plan,
        quantize,
        remember,
    )
    from anamnesis.reporting import report
    from anamnesis.saving import save
    from anamnesis.schemes.core.encoding import Encoding
    from anamnesis.tensor import Tensor

__all__ = [
    "AnamnesisError",
    "Cancelled",
    "Check",
    "Comparison",
    "DisallowedGlobal",
    "Encoding",
    "Finding",
    "Inspection",
    "LimitExceeded",
    "Model",
    "OutputError",
    "Page",
    "ParseError",
    "ParseLimits",
    "PipelineReport",
    "Plan",
    "Recipe",
    "Report",
    "Scan",
    "StoredTensor",
    "Tensor",
    "UnsupportedError",
    "__version__",
    "check",
    "compare",
    "convert",
    "dequantize",
    "detect_format",
    "edit_metadata",
    "forget",
    "inspect",
    "parse",
    "plan",
    "quantize",
    "read_imatrix",
    "read_recipe",
    "remember",
    "report",
    "safe_open",
    "save",
    "scan",
    "schemes",
    "supported_levels",
]

# Imported when first asked for, so that `amn --help` needs none of them.
_COMPILED = ("_core", "_io", "_parse")
_HOMES = {
    name: module
    for module, names in {
        "as_safetensors": "safe_open",
        "base.errors": (
            "AnamnesisError Cancelled DisallowedGlobal LimitExceeded"
            " OutputError ParseError UnsupportedError"
        ),
        "base.levels": "supported_levels",
        "base.limits": "ParseLimits",
        "base.stored": "StoredTensor",
        "checking": "check",
        "comparing": "compare",
        "convert.check.findings": "Check Finding",
        "convert.compare.comparison": "Comparison",
        "convert.plan.plan": "Plan",
        "convert.report.inspection": "Inspection",
        "convert.report.joined": "PipelineReport",
        "convert.report.html_parts": "Page",
        "convert.report.report": "Report",
        "convert.request.recipe": "Recipe read_recipe",
        "editing": "edit_metadata",
        "formats.imatrix": "read_imatrix",
        "formats.scan.report": "Scan",
        "formats.scan.scan": "scan",
        "model": "Model",
        "opening": "convert dequantize detect_format forget inspect parse plan quantize remember",
        "reporting": "report",
        "saving": "save",
        "schemes.core.encoding": "Encoding",
        "tensor": "Tensor",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    if name not in (*_HOMES, *_COMPILED, "schemes"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{_HOMES.get(name, name)}")
    except ModuleNotFoundError as error:
        if (error.name or "").removeprefix(f"{__name__}.") not in _COMPILED:
            raise
        message = f"{error.name} is not built; in a checkout, run `pip install -e .`"
        raise ImportError(message) from None
    if name not in _HOMES:
        return module
    globals()[name] = getattr(module, name)
    return globals()[name]


def __dir__() -> list[str]:
    return __all__
