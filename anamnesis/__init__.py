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
    from anamnesis.convert.report.inspection import Inspection
    from anamnesis.convert.report.joined import PipelineReport
    from anamnesis.convert.report.page import Page
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
    "AnamnesisError": "base.errors",
    "Cancelled": "base.errors",
    "Check": "convert.check.findings",
    "Comparison": "convert.compare.comparison",
    "DisallowedGlobal": "base.errors",
    "Encoding": "schemes.core.encoding",
    "Inspection": "convert.report.inspection",
    "LimitExceeded": "base.errors",
    "Model": "model",
    "OutputError": "base.errors",
    "Page": "convert.report.page",
    "ParseError": "base.errors",
    "ParseLimits": "base.limits",
    "Recipe": "convert.request.recipe",
    "Plan": "convert.plan.plan",
    "PipelineReport": "convert.report.joined",
    "Report": "convert.report.report",
    "Scan": "formats.scan.report",
    "StoredTensor": "base.stored",
    "Tensor": "tensor",
    "UnsupportedError": "base.errors",
    "Finding": "convert.check.findings",
    "check": "checking",
    "compare": "comparing",
    "convert": "opening",
    "dequantize": "opening",
    "detect_format": "opening",
    "edit_metadata": "editing",
    "forget": "opening",
    "inspect": "opening",
    "parse": "opening",
    "plan": "opening",
    "quantize": "opening",
    "read_imatrix": "formats.imatrix",
    "read_recipe": "convert.request.recipe",
    "remember": "opening",
    "report": "reporting",
    "safe_open": "as_safetensors",
    "save": "saving",
    "scan": "formats.scan.scan",
    "supported_levels": "base.levels",
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
