"""Files of text, written whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress

from anamnesis.base.errors import OutputError


def check_writable(path: str, *, force: bool = False) -> None:
    """Refuse, before any work, a file that cannot be written, or is not to be replaced."""
    if "://" in path:
        raise OutputError(f"{path}: is an address; name a file here")
    if os.path.lexists(path):
        if not force:
            raise OutputError(f"{path}: exists", remedy="force=True replaces it")
        if not os.path.isfile(path):
            raise OutputError(f"{path}: not a regular file; name another output")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise OutputError(f"{path}: there is no folder {folder}")
    if not os.access(folder, os.W_OK):
        raise OutputError(f"{path}: nothing can be written to {folder}; name another output")


def write_text(path: str, text: str, *, force: bool = False) -> None:
    """Write a file, with `force` in place of another."""
    check_writable(path, force=force)
    partial = f"{path}.{os.getpid()}.amn-partial"
    with open(partial, "x", encoding="utf-8") as file:
        try:
            file.write(text)
            file.close()
            _rename(partial, path, force=force)
        finally:
            with suppress(OSError):
                file.close()
            with suppress(FileNotFoundError):
                os.unlink(partial)


def _rename(partial: str, path: str, *, force: bool) -> None:
    """Give a file its name, without `force` unless there is one of that name by now."""
    if not force:
        try:
            os.link(partial, path)
            return
        except FileExistsError:
            raise OutputError(f"{path}: exists", remedy="force=True replaces it") from None
        except OSError:  # a file system without links
            check_writable(path)
    os.replace(partial, path)
