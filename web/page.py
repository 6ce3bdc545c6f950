"""The page's Python: reads headers of a file or an address by ranges, and returns HTML for them."""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import anamnesis as an
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.printable import printable
from anamnesis.base.sizes import format_size
from anamnesis.base.source import Source
from anamnesis.cli.errors import describe_error
from anamnesis.comparing import input_of
from anamnesis.convert.overview.page import Overview, overview_page
from anamnesis.convert.report.html_parts import section, text
from anamnesis.formats.scan.report import Scan
from anamnesis.sources import remote
from anamnesis.sources.http import HttpRanges
from anamnesis.sources.retries import PassingError, Ranges
from anamnesis.sources.urls import shown_url

if sys.platform == "emscripten":  # which starts no threads
    remote.at_once = lambda do, items, most: map(do, items)

_FIRST = 4096  # bytes of a file that are read at first
_WITHOUT_PICKLES = {"gguf", "safetensors"}
_models: dict[str, an.Model] = {}  # by slot


class Bytes(Protocol):
    """An array of JavaScript."""

    def to_bytes(self) -> bytes:
        """Return a copy."""


class Answer(Protocol):
    """A server's answer to a request for a range."""

    status: int
    length_remaining: int | None
    headers: Mapping[str, str]
    body: Bytes


class OfFile(Ranges):
    """A file that was chosen."""

    def __init__(self, name: str, size: int, read: Callable[[int, int], Bytes]) -> None:
        self.name, self.size, self._read = name, size, read

    def chunks(self, start: int, stop: int) -> Iterator[bytes]:
        try:
            yield self._read(start, min(stop, self.size)).to_bytes()
        except Exception:  # the browser's
            what = "is a folder, or was changed since it was chosen; choose a file again"
            raise OSError(errno.EIO, what, self.name) from None


class OfAddress(HttpRanges):
    """An object of a web server, which the browser asks."""

    def __init__(self, url: str, ask: Callable[[int, int], Answer]) -> None:
        self.name, self._ask_browser = shown_url(url), ask
        self._by = self._linked = ""
        self._same: dict[str, str] = {}

    def chunks(self, start: int, stop: int) -> Iterator[bytes]:
        try:
            answer = self._ask_browser(start, stop)
        except Exception:  # the browser's
            raise PassingError("the server does not answer") from None
        self._check(answer, start, stop)  # type: ignore[arg-type]
        yield answer.body.to_bytes()

    def _identify(self, size: int, headers: Mapping[str, str], *, is_whole: bool) -> None:
        # Pages of other sites may not see an ETag: the size must do then.
        super()._identify(size, headers, is_whole=True)


class PageSource(remote.RemoteSource):
    """What is read by ranges, each byte once, and has no folder that the page may look into."""

    def beside(self, name: str) -> None:  # type: ignore[override]
        return None


def read_file(slot: str, name: str, size: int, read: Callable[[int, int], Bytes]) -> str:
    """Return what a slot shows of a file, as JSON."""
    return _shown(slot, name, lambda: PageSource(OfFile(name, size, read), name, None, _FIRST))


def read_address(slot: str, url: str, ask: Callable[[int, int], Answer]) -> str:
    """Return what a slot shows of what is at an address, as JSON."""
    address = OfAddress(url, ask)
    return _shown(slot, address.name, lambda: PageSource(address, url, None, remote.PAGE))


def problem(slot: str, url: str, why: str) -> str:
    """Return what a slot shows of an address that the browser cannot ask, as JSON."""

    def opened() -> Source:
        raise UnsupportedError(why)

    return _shown(slot, shown_url(url), opened)


def compare() -> str:
    """Return what differs between the models of both slots, as HTML; empty if there is but one."""
    if len(_models) < 2:
        return ""
    try:
        return an.compare(_models["a"], _models["b"])._repr_html_()
    except Exception as error:
        return _problem(error, "the comparison")


def _shown(slot: str, name: str, opened: Callable[[], Source]) -> str:
    _models.pop(slot, None)
    shown: dict[str, Any] = {"name": printable(name), "size": -1, "html": "", "tensors": []}
    try:
        source: Any = opened()
        shown["size"] = source.size
        if an.detect_format(source) not in _WITHOUT_PICKLES:
            shown["html"] = _verdict(an.scan(source))
        model = an.parse(source)
        weights = tuple(input_of(model).ledger.weights.values())
        shown["html"] += overview_page(Overview(name, model.inspect(), weights, ()))._repr_html_()
        shown["tensors"] = [
            (printable(t.name), t.dtype.name, str(list(t.shape)), format_size(t.n_bytes))
            for t in model.stored.values()
        ]
        _models[slot] = model
    except Exception as error:
        shown["html"] += _problem(error, name)
    return json.dumps(shown)


def _verdict(scan: Scan) -> str:
    """Return what pickles refer to, and what was not looked into; nothing of files without."""
    if not (scan.pickles or scan.problems):
        return ""
    return section(f"Pickles: {scan.verdict}", scan._repr_html_())


def _problem(error: Exception, name: str) -> str:
    """Return one line on what is wrong."""
    if isinstance(error, ImportError):
        line = f"{name}: {error.name} is needed, which this page has not; run amn on your machine"
    else:
        line = describe_error(error, name)
    return f'<p class="problem">{text(line)}</p>'
