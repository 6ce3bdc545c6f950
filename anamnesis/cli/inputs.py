"""The models that a command line names, or that lie below its paths."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

_PARTIAL = ".amn-partial"


def files_below(root: str) -> Iterator[str]:
    """Yield all files below a folder, by name; folders of unfinished outputs are left out."""
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(name for name in inner if not name.endswith(_PARTIAL))
        yield from (os.path.join(folder, name) for name in sorted(names))


def files_inside(path: str) -> list[str] | None:
    """Return all files of a folder, here or elsewhere; None if it is no folder."""
    from anamnesis.sources.urls import kind_of_url

    if not kind_of_url(path):
        return list(files_below(path)) if os.path.isdir(path) else None
    from anamnesis.checkpoint.remote import files_at

    return files_at(path)


def models_below(paths: Sequence[str]) -> dict[str, str]:
    """Return the models at and below paths, and in which folder below its path each was found.

    A folder with a config.json or an index of shards is one model, and one with the index of a
    pipeline is one input as well; elsewhere each file with the extension of a model is. Folders
    whose name begins with a dot are left out.
    """
    from anamnesis.checkpoint.pipelines import is_pipeline

    found: dict[str, str] = {}
    for root in paths:
        if not os.path.isdir(root):
            found[root] = ""
            continue
        for folder, inner, names in os.walk(root):
            inner[:] = sorted(
                n for n in inner if not n.startswith(".") and not n.endswith(_PARTIAL)
            )
            models = [name for name in sorted(names) if _is_model(name)]
            if is_pipeline(folder) or (models and any(map(_is_of_a_model, names))):
                inner.clear()
                found[folder] = "" if folder == root else _below(os.path.dirname(folder), root)
            else:
                below = _below(folder, root)
                found.update({os.path.join(folder, name): below for name in models})
    return found


def models_in(folder: str) -> bool:
    """Whether a folder is a model, or holds some."""
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    return any(_is_model(name) or _is_of_a_model(name) for name in names)


def outputs_below(models: Iterable[str], roots: Sequence[str], out: str | None) -> list[str]:
    """Return the models that lie in the output, a folder below an input."""
    if out is None or not os.path.isdir(out):
        return []
    folder = os.path.realpath(out)
    above = {os.path.realpath(root) for root in roots}
    if folder in above or not any(_is_in(folder, root) for root in above):
        return []
    return [path for path in models if _is_in(os.path.realpath(path), folder)]


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _below(folder: str, root: str) -> str:
    relative = os.path.relpath(folder, root)
    return "" if relative == os.curdir else relative


def _is_model(name: str) -> bool:
    from anamnesis.formats.base import promised_format

    return promised_format(name) is not None or name.endswith(".bin")


def _is_of_a_model(name: str) -> bool:
    return name == "config.json" or name.endswith(".index.json")


def with_components(paths: Sequence[str]) -> list[str]:
    """Return paths, each pipeline replaced by the folders of its models."""
    from anamnesis.checkpoint.pipelines import components

    return [
        os.path.join(path, name) if name else path
        for path in paths
        for name in components(path) or [""]
    ]


def misnomer(path: str, format_id: str, format: str) -> str | None:
    """Return a warning if a file's extension contradicts its content."""
    from anamnesis.formats.base import WRITERS, promised_format

    promised = promised_format(path)
    if promised is None or format_id == promised:
        return None
    return f"{path}: is {format} by its content, not {WRITERS[promised].title} as its name says"
