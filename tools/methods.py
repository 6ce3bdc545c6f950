"""Compare the methods of quantisation that are known here with those of programs' newest releases.

`python tools/methods.py [FOLDER]` downloads the wheels into a folder, by default a temporary one,
and reads the lists in their sources; nothing of them is run. It fails if one has a method that no
row of unread.json names as that program's.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from anamnesis.schemes.detect import unread

__all__ = ["LISTS", "differences", "names_in"]


class List(NamedTuple):
    """Where a program lists its methods: a package, a file in it, and what is assigned there."""

    package: str
    file: str
    variables: tuple[str, ...]


LISTS = {
    "transformers": List(
        "transformers",
        "transformers/quantizers/auto.py",
        ("AUTO_QUANTIZATION_CONFIG_MAPPING",),
    ),
    "vLLM": List(
        "vllm", "vllm/model_executor/layers/quantization/__init__.py", ("QuantizationMethods",)
    ),
    "SGLang": List(
        "sglang", "sglang/srt/layers/quantization/__init__.py", ("BASE_QUANTIZATION_METHODS",)
    ),
    "diffusers": List(
        "diffusers", "diffusers/quantizers/auto.py", ("AUTO_QUANTIZATION_CONFIG_MAPPING",)
    ),
    "compressed-tensors": List(
        "compressed-tensors", "compressed_tensors/config/base.py", ("CompressionFormat",)
    ),
    "convert-to-quant": List(
        "convert-to-quant", "convert_to_quant/constants.py", ("VALID_QUANT_FORMATS",)
    ),
    "mlx-lm": List("mlx-lm", "mlx_lm/utils.py", ("quant_method",)),
}


def names_in(source: str, variables: tuple[str, ...]) -> set[str]:
    """Return the names that a module's variables, or a class of enums, list.

    A dictionary has them as keys, also where it is updated; a variable that is compared with texts
    stands for all of these.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        found.update(_of(node, variables))
    return found


def _of(node: ast.AST, variables: tuple[str, ...]) -> Iterator[str]:
    match node:
        case ast.Assign(targets=[ast.Name(name)], value=value) if name in variables:
            yield from _texts(value)
        case ast.AnnAssign(target=ast.Name(name), value=ast.expr() as value) if name in variables:
            yield from _texts(value)
        case ast.Call(func=ast.Attribute(ast.Name(name), "update"), args=[value]):
            yield from _texts(value) if name in variables else ()
        case ast.ClassDef(name=name, body=body) if name in variables:
            for line in body:
                if isinstance(line, ast.Assign):
                    yield from _texts(line.value)
        case ast.Compare(left=ast.Name(name), comparators=[value]) if name in variables:
            yield from _texts(value)


def _texts(node: ast.expr) -> Iterator[str]:
    """Yield the texts of a list or a `Literal`, or the keys of a dictionary."""
    if isinstance(node, ast.Subscript) and not (
        isinstance(node.value, ast.Name) and node.value.id == "Literal"
    ):
        return
    parts = node.keys if isinstance(node, ast.Dict) else [node]
    for part in parts:
        for one in ast.walk(part) if part is not None else ():
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                yield one.value


def differences(program: str, names: set[str]) -> list[str]:
    """Return a line for each name that is new, and for each row that is no longer one."""
    table = unread.known()
    rows = {row.name for row in table if program in row.programs.split(", ")}
    new = [f"{program} has {name!r}, which no row of unread.json gives it" for name in names - rows]
    gone = [f"{program} no longer has {name!r}" for name in rows - names]
    return sorted(new) + sorted(gone)


def main() -> int:
    """Print what differs."""
    with tempfile.TemporaryDirectory() as made:
        folder = sys.argv[1] if len(sys.argv) > 1 else made
        packages = [row.package for row in LISTS.values()]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary", ":all:", "--dest", folder, *packages]
        subprocess.run(command, check=True)
        lines = []
        for program, row in LISTS.items():
            stem = row.package.replace("-", "_")
            (wheel,) = Path(folder).glob(f"{stem}-*.whl")
            with zipfile.ZipFile(wheel) as archive:
                source = archive.read(row.file).decode()
            lines += differences(program, names_in(source, row.variables))
    print("\n".join(lines) or "all methods are known")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
