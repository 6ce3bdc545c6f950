"""Addresses of models that are elsewhere: their schemes, and their parts.

Every command imports this, so `urllib.parse` is imported only for an address.
"""

from __future__ import annotations

import os
import re
from typing import Any, Literal, NamedTuple

from anamnesis.base.errors import ParseError

Kind = Literal["web", "hub", "bucket"]

_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("http", "https"), "web"),
    "hf": "hub",
    **dict.fromkeys(("s3", "gs", "az"), "bucket"),
}
_HUB = re.compile(
    r"hf://([\w.-]+/[\w.-]+)(?:@(refs/(?:pr|convert)/[\w.-]+|[^/]+))?(?:/(.*))?",
    re.ASCII | re.DOTALL | re.IGNORECASE,
)
_SECRET = re.compile(r"(?<=://)[^/?#]*@|[?#].*", re.DOTALL)


def kind_of_url(where: Any) -> Kind | None:
    """Return what serves an address; None for what is no address, such as a path."""
    if not isinstance(where, str):
        return None
    scheme, mark, _ = where.partition("://")
    return _KINDS.get(scheme.lower()) if mark else None


def absolute(where: str | os.PathLike[str]) -> str:
    """Return a path from the root on, and an address as it is."""
    path = os.fspath(where)
    return path if kind_of_url(path) else os.path.abspath(path)


def shown_url(url: str) -> str:
    """Return an address without what may be secret: a user, a signature."""
    return _SECRET.sub("", url)


def file_name(url: str) -> str:
    """Return the last part of an address, as a file or a folder would be called."""
    kind = kind_of_url(url)
    if kind == "hub":
        url = str(HubPlace.parse(url)._replace(revision=None))
    elif kind == "web":
        from urllib.parse import unquote

        path = shown_url(url).partition("://")[2].partition("/")[2]
        url = unquote(path).replace("\\", "/")
    return url.rstrip("/").rpartition("/")[2]


def url_beside(url: str, name: str) -> str:
    """Return the address of a file in the folder of another."""
    if kind_of_url(url) != "web":
        return f"{url.rpartition('/')[0]}/{name}"
    from urllib.parse import quote, urljoin, urlsplit

    beside = urlsplit(urljoin(url, quote(name) or "."))
    return beside._replace(query=urlsplit(url).query).geturl()


class HubPlace(NamedTuple):
    """A repository of the Hugging Face hub, or a file or folder in it."""

    repository: str
    revision: str | None
    path: str

    @classmethod
    def parse(cls, url: str) -> HubPlace:
        """Read `hf://ORG/MODEL[@REVISION][/PATH]`."""
        found = _HUB.fullmatch(url)
        if found is None:
            raise ParseError("is not hf://ORG/MODEL[@REVISION][/FILE]", source=url)
        revision = found[2] and found[2].replace("%2F", "/").replace("%2f", "/")
        return cls(found[1], revision, (found[3] or "").rstrip("/"))

    def __str__(self) -> str:
        revision = f"@{self.revision.replace('/', '%2F')}" if self.revision else ""
        return f"hf://{self.repository}{revision}{f'/{self.path}' if self.path else ''}"
