"""The models that a command line names, and work that is done for each of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import click

from anamnesis.base.printable import printable
from anamnesis.checkpoint.pipelines import components, is_pipeline
from anamnesis.cli.errors import complain, describe_error, error_dict, wants_traceback
from anamnesis.cli.exit_codes import FAILED
from anamnesis.cli.streams import StdoutError, print_json
from anamnesis.formats.written import WRITERS, promised_format
from anamnesis.sources.urls import kind_of_url

_PARTIAL = ".amn-partial"


def files_below(root: str) -> Iterator[str]:
    """Yield all files below a folder, by name; folders of unfinished outputs are left out."""
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(name for name in inner if not name.endswith(_PARTIAL))
        yield from (os.path.join(folder, name) for name in sorted(names))


def files_inside(path: str) -> list[str] | None:
    """Return all files of a folder, here or elsewhere; None if it is no folder."""
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
    return promised_format(name) is not None or name.endswith(".bin")


def _is_of_a_model(name: str) -> bool:
    return name == "config.json" or name.endswith(".index.json")


def with_components(paths: Sequence[str]) -> list[str]:
    """Return paths, each pipeline replaced by the folders of its models."""
    return [
        os.path.join(path, name) if name else path
        for path in paths
        for name in components(path) or [""]
    ]


def misnomer(path: str, format_id: str, format: str) -> str | None:
    """Return a warning if a file's extension contradicts its content."""
    promised = promised_format(path)
    if promised is None or format_id == promised:
        return None
    return f"{path}: is {format} by its content, not {WRITERS[promised].title} as its name says"


def run_batch(
    paths: Sequence[str],
    work: Callable[[str], dict[str, Any]],
    *,
    as_json: bool | str = False,
    headings: bool = False,
    listed: bool = False,
) -> dict[str, str]:
    """Do `work` for each path; return those that failed, and why."""
    in_lines = as_json == "lines"
    results: list[dict[str, Any]] = []

    def add(result: dict[str, Any]) -> None:
        if in_lines:
            print_json(result, as_json)
        else:
            results.append(result)

    failures: dict[str, str] = {}
    try:
        for i, path in enumerate(paths):
            if len(paths) > 1 and headings and not as_json:
                print(f"{chr(10) if i else ''}{printable(path)}", flush=True)
            try:
                add({"path": path, **work(path)})
            except (BrokenPipeError, StdoutError, click.UsageError):
                raise
            except Exception as error:
                if wants_traceback():
                    raise
                failures[path] = describe_error(error, path)
                add({"path": path, "error": error_dict(error, path)})
                complain(failures[path])
    finally:
        if as_json and not in_lines and (results or listed):
            shown = results if listed or len(paths) > 1 else results[0]
            print_json(shown)
    return failures


def run_each(
    paths: Sequence[str], work: Callable[[str], dict[str, Any]], *, as_json: bool | str
) -> None:
    """Do `work` for each model, under its name; exit with 1 if any failed."""
    finish(run_batch(with_components(paths), work, as_json=as_json, headings=True))


def finish(failures: Collection[str]) -> None:
    """Exit with 1 if anything failed; first flush stdout, which may fail, too."""
    sys.stdout.flush()
    if failures:
        click.get_current_context().exit(FAILED)
