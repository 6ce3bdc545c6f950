"""Which tests need a heavy library: those whose module, or a module that it imports, imports one.

So nobody has to say it, and nobody can forget to.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

__all__ = ["HEAVY", "TESTS", "imports_of", "needs_oracle"]

# What takes gigabytes or a build, with which results are compared.
HEAVY = frozenset(
    {
        *(
            "torch",
            "transformers",
            "bitsandbytes",
            "gptqmodel",
            "gptqmodel_ext",
            "awq",
            "auto_round",
        ),
        *("mlx", "mlx_lm", "optimum"),
        *("compressed_tensors", "accelerate", "picklescan", "fickling", "modelscan"),
        "safetensors.torch",
        *("distributed", "mpi4py", "moto", "obstore", "huggingface_hub"),
        "ggml_c",  # tools/ggml_c.py, which builds ggml
    }
)
TESTS = Path(__file__).parents[1]


@cache
def needs_oracle(module: Path) -> bool:
    """Return whether importing a test module imports a heavy library."""
    for name in imports_of(module):
        if name in HEAVY:
            return True
        if name.startswith("helpers.") and needs_oracle(TESTS / f"{name.replace('.', '/')}.py"):
            return True
    return False


def imports_of(module: Path) -> Iterator[str]:
    """Yield the names that a module imports when it is imported itself, whole and up to a dot."""
    for node in _outside_functions(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
            if node.module == "helpers":
                names = [f"helpers.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            yield name
            yield name.partition(".")[0]


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        yield child
        yield from _outside_functions(child)
