"""What other programs make of a file: Python's unpicklers, NumPy, torch; picklescan and fickling.

The first three load it, with nothing behind the globals that they ask for. `other_programs.py` runs
this as a process of its own: a few bytes can keep them for years (nested tuples that are hashed or
printed), take all memory, or crash them.
"""

from __future__ import annotations

import gc
import io
import json
import logging
import os
import pickle
import re
import signal
import sys
import types
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from fickling.analysis import Severity, check_safety
from fickling.fickle import StackedPickle
from numpy.lib import _format_impl, _npyio_impl
from picklescan.scanner import SafetyLevel, scan_bytes

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

MOST_PICKLES = 8  # that are loaded from one file
MOST_MEMORY = 1 << 28  # bytes that loading may take: a number in a pickle can ask for any
MOST_SECONDS = 1.0  # of CPU time, for each program

MODULE = re.compile(r"[\w.-]+")  # no other can be imported
RAW = re.compile(  # what torch never unpickles; no pickle begins there as pickles do
    r"(.*/)?(data|constants)/\d+|(.*/)?(byteorder|version|\.data/serialization_id)"
    r"|(.*/)?code/.*\.py"
)
LOOKS = re.compile(rb"\x80[\x00-\x05]|[c(][A-Za-z_]")

Asked = set[tuple[str, str]]


class Stub:
    """What all globals stand for: a class whose objects let anything be done to them."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Stub:
        return object.__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Stub:
        return self

    def __setstate__(self, state: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    append = extend = add = __setstate__


def recording(kind: Any, asked: Asked) -> type:
    """Return a subclass of an unpickler that takes down what is asked for."""

    class Recording(kind):
        def find_class(self, module: str, name: str) -> Any:
            if not MODULE.fullmatch(module):
                raise ModuleNotFoundError(module)
            asked.add((module, name))
            return Stub

    return Recording


class Peeked(io.BytesIO):
    """A file that shows all that follows, so that the unpickler reads it as it reads bytes."""

    def peek(self, n: int = 0) -> bytes:
        """Return all that follows."""
        return self.getvalue()[self.tell() :]


OPENERS: tuple[Callable[[bytes], Any], ...] = (
    io.BytesIO,
    Peeked,
    lambda raw: io.BufferedReader(io.BytesIO(raw)),
    lambda raw: io.BufferedReader(io.BytesIO(raw), 16),
)


def unpickle(raw: bytes, asked: Asked) -> None:
    """Load pickles one after the other, in every way there is."""
    runs = [(pickle.Unpickler, opener) for opener in OPENERS]
    for kind, opener in (*runs, (pickle._Unpickler, io.BytesIO)):
        for is_persistent in (False, True):
            file = opener(raw)
            for _ in range(MOST_PICKLES):
                unpickler = recording(kind, asked)(file)
                if is_persistent:
                    unpickler.persistent_load = Stub
                try:
                    unpickler.load()
                except Exception:
                    break


def pickle_module(asked: Asked) -> Any:
    """Return what stands for the module `pickle` in NumPy and torch."""
    module = types.ModuleType("pickle")
    kind = recording(pickle.Unpickler, asked)

    def load(file: Any, **options: Any) -> Any:
        return kind(file, **options).load()

    module.Unpickler = kind  # type: ignore[attr-defined]
    module.load = load  # type: ignore[attr-defined]
    return module


def load_arrays(path: str, asked: Asked) -> None:
    """Let NumPy load a file, each array of it."""
    stub = pickle_module(asked)
    numpy_format, numpy_files = cast(Any, _format_impl), cast(Any, _npyio_impl)
    before = numpy_format.pickle, numpy_files.pickle
    numpy_format.pickle = numpy_files.pickle = stub
    try:
        loaded = np.load(path, allow_pickle=True)
        if isinstance(loaded, np.lib.npyio.NpzFile):
            with loaded:
                for name in loaded.files:
                    with suppress(Exception):
                        loaded[name]
    except Exception:
        pass
    finally:
        numpy_format.pickle, numpy_files.pickle = before


@contextmanager
def little_memory() -> Iterator[None]:
    """Let no more memory be taken than `MOST_MEMORY`."""
    if resource is None or not os.path.exists("/proc/self/statm"):
        yield
        return
    with open("/proc/self/statm") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (taken + MOST_MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def load(path: str, raw: bytes, asked: Asked) -> None:
    """Add the globals that anything which loads a file asks for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        unpickle(raw, asked)
        load_arrays(path, asked)
        with suppress(Exception):
            torch.load(path, weights_only=False, pickle_module=pickle_module(asked))
        with suppress(Exception), zipfile.ZipFile(path) as archive:
            is_torch = any(f"/{name}".endswith("/data.pkl") for name in archive.namelist())
            for info in archive.infolist():
                with suppress(Exception):
                    inner = archive.read(info)
                    is_raw = is_torch and RAW.fullmatch(info.filename)
                    if not is_raw or LOOKS.match(inner):
                        unpickle(inner, asked)


def ask_picklescan(path: str, raw: bytes, found: Asked) -> None:
    """Add what picklescan finds dangerous under any ending of the file's name."""
    for ending in (".pkl", ".pt", ".npy", ".npz"):
        with suppress(Exception):
            for told in scan_bytes(io.BytesIO(raw), "x", ending).globals:
                if told.safety == SafetyLevel.Dangerous:
                    found.add((told.module, told.name))


def ask_fickling(path: str, raw: bytes, found: Asked) -> None:
    """Add fickling's verdict if it is sure that one of the pickles does harm."""
    with suppress(Exception):
        for pickled in StackedPickle.load(io.BytesIO(raw)):
            severity = check_safety(pickled).severity
            if severity >= Severity.LIKELY_OVERTLY_MALICIOUS:
                found.add(("fickling", severity.name))


PROGRAMS: dict[str, Callable[[str, bytes, Asked], None]] = {
    "loaders": load,
    "picklescan": ask_picklescan,
    "fickling": ask_fickling,
}

# --- the process that they run in ---------------------------------------------------------------


class Expected(set[tuple[str, str]]):
    """What is found, and told at once: whatever keeps the program afterwards, it is not lost."""

    def __init__(self, answers: Any) -> None:
        super().__init__()
        self._answers = answers

    def add(self, found: tuple[str, str]) -> None:
        """Keep and tell."""
        if found not in self:
            super().add(found)
            print(json.dumps(found), file=self._answers, flush=True)


def serve() -> None:
    """Answer what stdin asks, a JSON string a line, until it ends; each answer ends with `null`.

    A child answers, and another takes its place if it is killed, or kills itself.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    gc.freeze()
    while True:
        child = os.fork()
        if not child:
            try:
                _answer_all(answers)
                os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        if not status:
            return
        print(f"a program was cut off: status {status}", file=sys.stderr)
        print("null", file=answers, flush=True)


def _answer_all(answers: Any) -> None:
    while line := os.read(0, 4096):  # which has room for one request, and there is only one
        program, path = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
        with little_memory():
            PROGRAMS[program](path, Path(path).read_bytes(), Expected(answers))
        signal.setitimer(signal.ITIMER_PROF, 0)
        print("null", file=answers, flush=True)


logging.getLogger("picklescan").setLevel(logging.CRITICAL + 1)

if __name__ == "__main__":
    serve()
