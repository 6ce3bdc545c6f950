"""A file that is scanned: as the fuzzer's bytes are, or built from them if they start with `S`.

Python's unpicklers, NumPy and torch load it, with nothing behind the globals that they ask for.
What they ask for must be what `scan` has found, and harmless if it says *safe*; and so must be what
other scanners find.
"""

from __future__ import annotations

import gc
import io
import logging
import os
import pickle
import re
import sys
import tempfile
import types
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch
from fickling.analysis import Severity, check_safety
from fickling.fickle import StackedPickle
from numpy.lib import _format_impl, _npyio_impl
from picklescan.scanner import SafetyLevel, scan_bytes
from structured import Choices
from structured_scan import scan_file

from anamnesis.formats.scan.scan import Scan, scan
from anamnesis.formats.torch.globals import is_allowed

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

MOST_PICKLES = 8  # that are loaded from one file
MOST_MEMORY = 1 << 28  # bytes that loading may take: a number in a pickle can ask for any
FICKLED = 16  # one file in so many

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

    class Recording(kind):  # type: ignore[misc]
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
    lambda raw: io.BufferedReader(io.BytesIO(raw)),  # type: ignore[arg-type]
    lambda raw: io.BufferedReader(io.BytesIO(raw), 16),  # type: ignore[arg-type]
)


def unpickle(raw: bytes, asked: Asked) -> None:
    """Load pickles one after the other, in every way there is."""
    runs = [(pickle.Unpickler, opener) for opener in OPENERS]
    for kind, opener in (*runs, (pickle._Unpickler, io.BytesIO)):  # type: ignore[attr-defined]
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
    before = _format_impl.pickle, _npyio_impl.pickle
    _format_impl.pickle = _npyio_impl.pickle = stub
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
        _format_impl.pickle, _npyio_impl.pickle = before


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


def asked_for(raw: bytes) -> Asked:
    """Return the globals that anything which loads a file asks for."""
    asked: Asked = set()
    with little_memory(), warnings.catch_warnings(), tempfile.NamedTemporaryFile() as file:
        warnings.simplefilter("ignore")
        file.write(raw)
        file.flush()
        unpickle(raw, asked)
        load_arrays(file.name, asked)
        with suppress(Exception):
            torch.load(file.name, weights_only=False, pickle_module=pickle_module(asked))
        with suppress(Exception), zipfile.ZipFile(file) as archive:
            is_torch = any(f"/{name}".endswith("/data.pkl") for name in archive.namelist())
            for info in archive.infolist():
                with suppress(Exception):
                    inner = archive.read(info)
                    is_raw = is_torch and RAW.fullmatch(info.filename)
                    if not is_raw or LOOKS.match(inner):
                        unpickle(inner, asked)
    return asked


def dangerous_to_picklescan(raw: bytes) -> Asked:
    """Return what picklescan finds under any ending of the file's name."""
    found: Asked = set()
    for ending in (".pkl", ".pt", ".npy", ".npz"):
        with suppress(Exception):
            for told in scan_bytes(io.BytesIO(raw), "x", ending).globals:
                if told.safety == SafetyLevel.Dangerous:
                    found.add((told.module, told.name))
    return found


def is_malicious_to_fickling(raw: bytes) -> bool:
    """Tell whether fickling is sure that one of the pickles does harm."""
    with suppress(Exception):
        pickles = StackedPickle.load(io.BytesIO(raw))
        return any(check_safety(p).severity >= Severity.LIKELY_OVERTLY_MALICIOUS for p in pickles)
    return False


def check_against_loaders(raw: bytes, told: Scan) -> None:
    """Raise if a loader asks for what was not found, or is not harmless in what is safe."""
    asked = asked_for(raw)
    if told.verdict == "safe":
        assert all(is_allowed(*found) for found in asked), asked
    if not told.problems and not any(p.malformed for p in told.pickles):
        found = {(g.module, g.name) for p in told.pickles for g in p.globals}
        assert asked <= found or ("(computed)", "(computed)") in found, asked - found


def check(data: bytes) -> None:
    """Raise whatever an input brings out that should not come out."""
    raw = scan_file(Choices(data[1:])) if data[:1] == b"S" else data
    told = scan(raw)
    check_against_loaders(raw, told)
    if told.verdict == "safe":
        # picklescan guesses which strings STACK_GLOBAL takes.
        assert b"\x93" in raw.replace(b"\x93NUMPY", b"") or not dangerous_to_picklescan(raw)
        if zlib.crc32(raw) % FICKLED == 0:
            assert not is_malicious_to_fickling(raw)


logging.getLogger("picklescan").setLevel(logging.CRITICAL + 1)


def main() -> None:
    """Fuzz until libFuzzer's options say stop."""
    import atheris

    for function in gc.get_objects():  # not torch's: they are 30,000
        module = getattr(function, "__module__", None)
        if type(function) is types.FunctionType and str(module).startswith("anamnesis."):
            atheris.instrument_func(function)
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
