"""Objects of web servers, in ranges over HTTP."""

from __future__ import annotations

import errno
import threading
from base64 import b64encode
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import unquote, urljoin
from urllib.request import getproxies, proxy_bypass

from anamnesis.base.errors import ParseError
from anamnesis.base.version import __version__
from anamnesis.sources.retries import PassingError, Ranges, extra
from anamnesis.sources.urls import shown_url

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, PoolManager

_PORTS = {"http": 80, "https": 443}
_MAX_REDIRECTS = 5
_PASSING = (408, 425, 429, 500, 502, 503, 504)
_REFUSED = (401, 403)
_MEANINGS = {
    **dict.fromkeys((404, 410), (errno.ENOENT, "no such file")),
    **dict.fromkeys(_REFUSED, (errno.EACCES, "access is refused")),
}
_LONGEST_WAIT = 30.0  # seconds that a server may ask for
_CHUNK = 1 << 18
_CONNECTIONS = 128  # to a host
_TIMEOUT = 30.0  # seconds without a byte
# What identifies an object, and how to ask for the same one; the best first.
_CONDITIONS = {"ETag": "If-Match", "Last-Modified": "If-Unmodified-Since"}


class HttpRanges(Ranges):
    """An object of a web server.

    An address that leads elsewhere is followed once, and again when the other, which may be signed
    for some minutes, expires. What is secret goes to the host of the first address only.
    """

    def __init__(self, url: str, secret: str | None = None) -> None:
        self.name = shown_url(url)
        with extra("remote", self.name):
            from urllib3.util import parse_url
        try:
            parts = parse_url(url)
            self._first = parts._replace(auth=None, fragment=None).url
            self._home = _origin(self._first)
        except ValueError as error:
            raise _failure(error, self.name) from None
        self._secret = secret or _user(parts.auth)
        self._by = ""  # the header that identifies the object
        self._linked = ""  # what a redirect says that identifies it
        self._same: dict[str, str] = {}  # what the server compares before it answers
        self._at: str | None = None  # where the address leads to, as of one look
        self._lock = threading.Lock()
        self._proxies = getproxies()

    def chunks(self, start: int, stop: int) -> Iterator[bytes]:
        from urllib3.exceptions import HTTPError

        try:
            response = self._ask(start, stop)
            try:
                self._check(response, start, stop)
                if self.size:
                    yield from response.stream(_CHUNK, decode_content=False)
            finally:
                _let_go(response)
        except (HTTPError, ValueError) as error:
            raise _failure(error, self.name, is_first=self.size < 0) from None

    def _ask(self, start: int, stop: int) -> BaseHTTPResponse:
        """Ask for a range where the address leads to, which one of several threads finds out."""
        with self._lock:
            at = self._at
            if at is None:
                return self._follow(start, stop)
        response = self._get(at, start, stop, self._same)
        if response.status in _REFUSED and at != self._first:
            _let_go(response)
            if self._at is at:  # else another thread has looked again, and got another text
                self._at = None
            raise PassingError(f"{shown_url(at)} refuses access (HTTP {response.status})")
        return response

    def _follow(self, start: int, stop: int) -> BaseHTTPResponse:
        url = self._first
        for _ in range(_MAX_REDIRECTS + 1):
            response = self._get(url, start, stop, {})
            where = response.get_redirect_location()
            if not where:
                self._at = url
                return response
            _let_go(response)
            self.look_at(response.headers)
            url = urljoin(url, where)
        raise ParseError(f"redirects more than {_MAX_REDIRECTS} times", source=self.name)

    def _get(self, url: str, start: int, stop: int, same: Mapping[str, str]) -> BaseHTTPResponse:
        headers = {
            "Range": f"bytes={start}-{stop - 1}",
            "Accept-Encoding": "identity",
            "User-Agent": f"anamnesis/{__version__}",
            **same,
        }
        scheme, host, _ = origin = _origin(url)
        if self._secret and origin == self._home:
            headers["Authorization"] = self._secret
        proxy = self._proxies.get(scheme) or self._proxies.get("all")
        return _pool(None if proxy and proxy_bypass(host) else proxy).request(
            "GET", url, headers=headers, redirect=False, retries=False, preload_content=False
        )

    def look_at(self, headers: Mapping[str, str]) -> None:
        """Note what a server says beside a redirect."""

    def _check(self, response: BaseHTTPResponse, start: int, stop: int) -> None:
        """Refuse an answer that is not the range of the same object."""
        status, headers, length = response.status, response.headers, response.length_remaining
        span, _, total = headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        known, size = self.size >= 0, _number(total)
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
        strong = (by for by in _CONDITIONS if not (headers.get(by) or "W/").startswith("W/"))
        self._by = next(strong, "")
        self.tag = headers.get(self._by) or self._linked
        if self._by:
            self._same = {_CONDITIONS[self._by]: self.tag}
        elif not (self.tag or is_whole):
            raise ParseError(
                "the server gives neither a strong ETag nor Last-Modified, so that the file may be"
                " replaced unseen while it is read",
                source=self.name,
                remedy="download it first",
            )
        self.size, self.modified_ns = size, _time_ns(headers.get("Last-Modified"))

    def _wrong(self, status: int, headers: Mapping[str, str]) -> Exception:
        """Return the error that an answer means."""
        if status in _PASSING:
            wait = _number(headers.get("Retry-After")) or 0
            return PassingError(f"HTTP {status}", min(wait, _LONGEST_WAIT))
        if status in (412, 416) and self.size >= 0:
            return self.replaced()
        if status in (200, 206):
            what = "sends the whole file" if status == 200 else "gives another range"
            return ParseError(
                f"the server {what} where a range is asked for",
                source=self.name,
                remedy="download the file first",
            )
        number, what = _MEANINGS.get(status, (errno.EIO, "the server gives no file"))
        return OSError(number, f"{what} (HTTP {status})", self.name)


def _origin(url: str) -> tuple[str, str, int]:
    from urllib3.util import parse_url

    parts = parse_url(url)
    if parts.scheme not in _PORTS or not parts.host:  # which a proxy might take
        raise ValueError(shown_url(url))
    return parts.scheme, parts.host, parts.port or _PORTS[parts.scheme]


def _user(auth: str | None) -> str:
    """Return what tells a server who asks, if an address names a user."""
    if auth is None:
        return ""
    name, _, password = auth.partition(":")
    return f"Basic {b64encode(unquote(f'{name}:{password}').encode()).decode()}"


@cache
def _pool(proxy: str | None) -> PoolManager:
    """Return the connections, which are kept for the next requests."""
    import urllib3

    timeout = urllib3.Timeout(connect=_TIMEOUT / 3, read=_TIMEOUT)
    if proxy is None:
        return urllib3.PoolManager(maxsize=_CONNECTIONS, timeout=timeout)
    user = _user(urllib3.util.parse_url(proxy).auth)
    headers = {"Proxy-Authorization": user} if user else {}
    return urllib3.ProxyManager(proxy, proxy_headers=headers, maxsize=_CONNECTIONS, timeout=timeout)


def _let_go(response: BaseHTTPResponse) -> None:
    """Keep the connection for the next request, unless much of the answer is still to come."""
    left = response.length_remaining
    if left is not None and left <= _CHUNK:
        response.drain_conn()
    else:
        response.close()
    response.release_conn()


def _failure(error: Exception, name: str, *, is_first: bool = True) -> Exception:
    """Return what a failure to connect or to read means."""
    from urllib3.exceptions import NewConnectionError

    text = " ".join(str(error).split())[:200]
    if isinstance(error, ValueError):
        return ParseError(f"is not the address of a web server: {text}", source=name)
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
