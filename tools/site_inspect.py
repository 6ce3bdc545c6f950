"""The site's page that inspects a model in the browser: Python in WebAssembly, and this package.

    python tools/site_inspect.py SITE      adds it to a site

Pyodide comes from npm, by the hashes of web/package-lock.json. It is also a hook of mkdocs, which
knows by it that the page is there.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from anamnesis import _core

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

PROJECT = Path(__file__).parents[1]
WEB = PROJECT / "web"
PAGE = "inspect.html"
FOLDER = "inspect"  # of what the page loads
_LOADED = ("page.js", "page.css", "worker.js")
_PYODIDE = (
    *("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm"),
    *("pyodide-lock.json", "python_stdlib.zip"),
)
_DATA = (".py", ".json", ".css")  # of the package
_STUBS = ("_io", "_parse")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Let pages link to the page."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, PAGE, abs_src_path=str(WEB / PAGE)))
    return files


def stubs() -> dict[str, str]:
    """Return the source of what stands for each C module: of `_core` its tables."""
    core = "\n".join(["from collections import namedtuple", *_tables()])
    return {"_core": core, **{name: (WEB / f"{name}.py").read_text("utf-8") for name in _STUBS}}


def _tables() -> list[str]:
    """Return the tables of `_core` as Python, and the functions that return one."""
    names = [name for name in vars(_core) if name.isupper()]
    kind = _core.BlockType
    types = [tuple(one) for one in _core.block_types()]
    return [
        *(f"{name} = {getattr(_core, name)!r}" for name in names),
        f"_Type = namedtuple({kind.__name__!r}, {kind._fields!r})",
        f"_TYPES = tuple(_Type(*row) for row in {types!r})",
        "def block_types(): return _TYPES",
        "def supported_levels(): return ('scalar',)",
    ]


def write_package(path: Path) -> None:
    """Write the package without C, and the page's Python, as an archive."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted((PROJECT / "anamnesis").rglob("*")):
            if file.suffix in _DATA:
                archive.write(file, file.relative_to(PROJECT))
        for name, text in stubs().items():
            archive.writestr(f"anamnesis/{name}.py", text)
        archive.write(WEB / "page.py", "page.py")


def install(folder: Path, *options: str) -> Path:
    """Let npm download what web/package-lock.json names, and return where that is."""
    for name in ("package.json", "package-lock.json"):
        shutil.copy(WEB / name, folder)
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("site_inspect: npm is missing, which downloads Pyodide; install nodejs and npm")
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", *options]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return folder / "node_modules"


def build(site: Path) -> None:
    """Add the page to a site."""
    into = site / FOLDER
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        modules = install(Path(scratch), "--omit=dev")
        for name in _PYODIDE:
            shutil.copy(modules / "pyodide" / name, into)
    for name in _LOADED:
        shutil.copy(WEB / name, into)
    shutil.copy(WEB / PAGE, site)
    shutil.copy(PROJECT / "anamnesis/convert/report/page.css", into / "report.css")
    write_package(into / "anamnesis.zip")


if __name__ == "__main__":
    build(Path(sys.argv[1]))
