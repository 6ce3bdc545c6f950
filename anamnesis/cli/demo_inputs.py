"""Writes the files of a demo into a folder, and replaces nobody else's."""

from __future__ import annotations

from pathlib import Path

from anamnesis.base.errors import OutputError
from anamnesis.cli.demo_models import DEMOS


def make_demo(name: str, directory: str) -> None:
    """Make a demo, and print what it is."""
    from anamnesis.base.printable import format_size

    demo = DEMOS[name]
    folder = Path(directory)
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder}: is not a directory; name one")
    files = demo.make()
    is_there = _check_own(folder, files)
    for path, raw in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(raw)
    size = format_size(sum(map(len, files.values())))
    made = "is there already" if is_there else demo.what
    shown = folder / demo.path
    print(f"{shown}{'/' if shown.is_dir() else ''}: {made} ({size})")


def _check_own(folder: Path, files: dict[str, bytes]) -> bool:
    """Whether all files exist; refuse to replace one that is not the demo's."""
    present = [path for path in files if (folder / path).exists()]
    for path in present:
        target = folder / path
        if not target.is_file() or target.read_bytes() != files[path]:
            raise OutputError(
                f"{target}: exists and is not the demo's; name another folder, as the last word"
            )
    return len(present) == len(files)
