"""What an import says where the package is not whole, or not alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import anamnesis

COMPILED = ("*.so", "*.pyd")
FOREIGN = "mpihandler.py"  # of the distribution called anamnesis


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with a copy of the package."""
    ignored = shutil.ignore_patterns("__pycache__", "*.c", "*.pyx")
    shutil.copytree(Path(anamnesis.__file__).parent, tmp_path / "anamnesis", ignore=ignored)
    return tmp_path


def last_line(site: Path, code: str, *flags: str) -> str:
    code = f"import sys; sys.path.insert(0, {str(site)!r}); {code}"
    command = [sys.executable, *flags, "-c", code]
    done = subprocess.run(command, cwd=site, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip().rpartition("\n")[2]


def test_a_copy_is_imported(site: Path) -> None:
    where = last_line(site, "import anamnesis; anamnesis.parse; print(anamnesis.__file__)")
    assert where == str(site / "anamnesis" / "__init__.py")


def test_compiled_part_is_missing(site: Path) -> None:
    for pattern in COMPILED:
        for path in (site / "anamnesis").glob(pattern):
            path.unlink()
    # Without `site`, or an editable install would fill in what the copy lacks.
    assert last_line(site, "import anamnesis; anamnesis.supported_levels", "-S") == (
        "ImportError: anamnesis._core is not built; in a checkout, run `pip install -e .`"
    )


@pytest.mark.parametrize("code", ["import anamnesis", "import anamnesis.cli.app"])
def test_other_distribution_lies_in_the_same_folder(site: Path, code: str) -> None:
    (site / "anamnesis" / FOREIGN).touch()
    assert "are installed in one environment" in last_line(site, code)


def test_other_distribution_was_installed_last(site: Path) -> None:
    (site / "anamnesis" / FOREIGN).touch()
    (site / "anamnesis" / "__init__.py").write_text('"""Anamnesis top level module"""\n')
    assert "are installed in one environment" in last_line(site, "import anamnesis.cli.app")
