"""Objects of web servers, in ranges over HTTP."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from anamnesis.base.errors import ParseError
from anamnesis.base.version import __version__
from anamnesis.sources.ranges import PassingError, Ranges, extra
from anamnesis.sources.urls import shown_url

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, PoolManager

_REDIRECTS = (301, 302, 303, 307, 308)
_MAX_REDIRECTS = 5
_PASSING = (408, 425, 429, 500, 502, 503, 504)
_REFUSED = (401, 403)
_LONGEST_WAIT = 30.0  # seconds that a server may ask for
_CHUNK = 1 << 18
_CONNECTIONS = 128  # to a host
_TIMEOUT = 30.0  # seconds without a byte


class HttpRanges(Ranges):
    """An object of a web server.

    An address that leads elsewhere is followed once, and again when the other, which may be signed
    for some minutes, expires. What is secret goes to the host of the first address only.
    """

    def __init__(self, url: str, secret: Mapping[str, str] | None = None) -> None:
        self.name = shown_url(url)
        parts = split(url, self.name)
        host = parts.netloc.rpartition("@")[2]
        self._first = parts._replace(netloc=host, fragment="").geturl()
        with extra("remote", self.name):
            self._secret = secret or _user(parts, "Authorization")
        self._by = ""  # the header that identifies the object
        self._linked = ""  # what a redirect says that identifies it
        self._same: dict[str, str] = {}  # what the server compares before it answers
        self._settled: str | None = None  # where the address leads to, as of one look
        self._lock = threading.Lock()

    def chunks(self, start: int, stop: int) -> Iterator[bytes]:
        from urllib3.exceptions import HTTPError

        at = self._settled
        try:
            response, url = self._ask(at, start, stop)
            try:
                if at is not None and self._has_expired(response, url):
                    self._settle_again(at)
                self._check(response, url, start, stop)
                if at is None:
                    self._settled = url
                if self.size:
                    yield from response.stream(_CHUNK, decode_content=False)
            finally:
                _let_go(response)
        except HTTPError as error:
            raise _failure(error, self.name, is_first=self.size < 0) from None

    def _settle_again(self, old: str) -> None:
        """Follow the first address anew; of several threads that want it, one does.

        Each look makes another text, by whose identity it is known.
        """
        with self._lock:
            if self._settled is old:
                response, url = self._ask(None, 0, 1)
                try:
                    self._check(response, url, 0, 1)
                finally:
                    _let_go(response)
                self._settled = url

    def _ask(self, at: str | None, start: int, stop: int) -> tuple[BaseHTTPResponse, str]:
        """Ask for a range, and follow redirects; return the last answer, and who gave it."""
        url = self._first if at is None else at
        for _ in range(_MAX_REDIRECTS + 1):
            headers = {
                "Range": f"bytes={start}-{stop - 1}",
                "Accept-Encoding": "identity",
                "User-Agent": f"anamnesis/{__version__}",
                **(self._same if at is not None else {}),
                **(self._secret if _origin(url) == _origin(self._first) else {}),
            }
            pool = _pool(_proxy(url))
            response = pool.request(
                "GET", url, headers=headers, redirect=False, retries=False, preload_content=False
            )
            where = response.headers.get("Location")
            if response.status not in _REDIRECTS or not where:
                return response, url
            _let_go(response)
            self.look_at(response.headers)
            url = split(where, self.name, url).geturl()
        raise ParseError(f"leads elsewhere more than {_MAX_REDIRECTS} times", source=self.name)

    def look_at(self, headers: Mapping[str, str]) -> None:
        """Note what a server says beside a redirect."""

    def _has_expired(self, response: BaseHTTPResponse, url: str) -> bool:
        return response.status in _REFUSED and url != self._first

    def _check(self, response: BaseHTTPResponse, url: str, start: int, stop: int) -> None:
        """Refuse an answer that is not the range of the same object."""
        status, headers = response.status, response.headers
        if self._has_expired(response, url):
            raise PassingError(f"{shown_url(url)} refuses access (HTTP {status})")
        span, _, total = headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        known, size, length = self.size >= 0, _number(total), _number(headers.get("Content-Length"))
        if status == 200 and start == 0 and length is not None and length <= stop:
            size = length  # of all of it, which was asked for
        elif size is None or not (
            (status == 206 and span.startswith(f"{start}-"))
            or (status == 416 and not known and size == 0)
        ):
            raise self._wrong(status, headers)
        if headers.get("Content-Encoding", "identity") != "identity":
            raise ParseError("the server compresses it, so it has no ranges", source=self.name)
        if not known:
            self._identify(size, headers, is_whole=size <= stop)
        elif size != self.size or headers.get(self._by, self.tag) != self.tag:
            raise self.replaced()

    def _identify(self, size: int, headers: Mapping[str, str], *, is_whole: bool) -> None:
        """Note by what the object is known again: a strong ETag, else the time and the size."""
        tag, modified = headers.get("ETag", ""), headers.get("Last-Modified")
        if tag and not tag.startswith("W/"):
            self._by, self.tag, self._same = "ETag", tag, {"If-Match": tag}
        elif modified:
            self._by, self.tag = "Last-Modified", modified
            self._same = {"If-Unmodified-Since": modified}
        elif self._linked:
            self.tag = self._linked
        elif not is_whole:
            raise ParseError(
                "the server gives neither a strong ETag nor Last-Modified, so that the file may be"
                " replaced unseen while it is read",
                source=self.name,
                remedy="download it first",
            )
        self.size, self.modified_ns = size, _time_ns(modified)

    def _wrong(self, status: int, headers: Mapping[str, str]) -> Exception:
        """Return the error that an answer means."""
        if status in _PASSING:
            wait = _number(headers.get("Retry-After")) or 0
            return PassingError(f"HTTP {status}", min(wait, _LONGEST_WAIT))
        if status in (412, 416) and self.size >= 0:
            return self.replaced()
        if status in (404, 410):
            return FileNotFoundError(errno.ENOENT, f"no such file (HTTP {status})", self.name)
        if status in _REFUSED:
            return PermissionError(errno.EACCES, f"access is refused (HTTP {status})", self.name)
        if status in (200, 206):
            what = "gives all of the file" if status == 200 else "gives another range"
            return ParseError(
                f"the server {what} where a range is asked for",
                source=self.name,
                remedy="download the file first",
            )
        return OSError(errno.EIO, f"the server answers HTTP {status}", self.name)


def split(url: str, source: str, base: str = "") -> SplitResult:
    """Return the parts of an address that can be asked, which may be relative to another."""
    try:
        parts = urlsplit(urljoin(base, url))
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts
    except ValueError:  # of the port, or brackets
        pass
    raise ParseError(f"{shown_url(url)!r} is no address of a web server", source=source)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}[parts.scheme]


def _user(parts: SplitResult, header: str) -> Mapping[str, str]:
    """Return the header that says who asks, if an address names a user."""
    import urllib3

    if parts.username is None:
        return {}
    told = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {header: urllib3.make_headers(basic_auth=told)["authorization"]}


def _proxy(url: str) -> str | None:
    """Return the proxy that the environment names for an address."""
    parts = urlsplit(url)
    if proxy_bypass(parts.hostname or ""):
        return None
    return getproxies().get(parts.scheme) or getproxies().get("all")


@cache
def _pool(proxy: str | None) -> PoolManager:
    """Return the connections, which are kept for the next requests."""
    import urllib3

    settings: dict[str, Any] = {
        "maxsize": _CONNECTIONS,
        "timeout": urllib3.Timeout(connect=_TIMEOUT / 3, read=_TIMEOUT),
    }
    if proxy is None:
        return urllib3.PoolManager(**settings)
    user = _user(urlsplit(proxy), "Proxy-Authorization")
    return urllib3.ProxyManager(proxy, proxy_headers=user, **settings)


def _let_go(response: BaseHTTPResponse) -> None:
    """Keep the connection for the next request, unless much of the answer is still to come."""
    left = response.length_remaining
    if left is not None and left <= _CHUNK:
        response.drain_conn()
    else:
        response.close()
    response.release_conn()


def _failure(error: Exception, name: str, *, is_first: bool) -> Exception:
    """Return what a failure to connect or to read means."""
    from urllib3.exceptions import LocationValueError, NewConnectionError

    text = " ".join(str(error).split())[:200]
    if isinstance(error, LocationValueError):
        return ParseError(f"is no address of a web server: {text}", source=name)
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return ConnectionError(errno.ECONNABORTED, f"its certificate is refused: {text}", name)
    if is_first and isinstance(error, NewConnectionError):
        return ConnectionError(errno.ECONNREFUSED, f"cannot be reached: {text}", name)
    return PassingError(text)


def _number(told: str | None) -> int | None:
    return int(told) if told and told.isdecimal() and len(told) < 20 else None


def _time_ns(told: str | None) -> int:
    try:
        return int(parsedate_to_datetime(told or "").timestamp()) * 10**9
    except (ValueError, OverflowError):
        return 0
