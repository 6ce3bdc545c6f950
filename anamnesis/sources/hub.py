"""Files of the Hugging Face hub: their places, their readers, and its cache."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

from anamnesis.base.errors import ParseError
from anamnesis.sources.http import HttpRanges
from anamnesis.sources.retries import extra
from anamnesis.sources.urls import HubPlace

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

_MOST_LISTED = 64 << 20  # bytes of a listing
_IS_COMMIT = re.compile("[0-9a-f]{40}")
_ACCESS = "HF_TOKEN or `hf auth login` gives access"
_NOT_CACHED = "is not in the hub's cache, and HF_HUB_OFFLINE is set"
# By what the hub calls an error.
_REFUSALS = {
    "GatedRepo": f"accept its terms on the hub; {_ACCESS}",
    "RepoNotFound": f"no such repository, or a private one; {_ACCESS}",
    "RevisionNotFound": "the repository has no such revision",
    "EntryNotFound": "the repository has no such file",
}


class HubRanges(HttpRanges):
    """A file of a repository, at the server that keeps it."""

    def __init__(self, place: HubPlace) -> None:
        from huggingface_hub import constants, get_token

        token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
        super().__init__(self._url(place), token and f"Bearer {token}")
        self.name = str(place)
        self.commit = ""

    def _url(self, place: HubPlace) -> str:
        from huggingface_hub.constants import HUGGINGFACE_CO_URL_TEMPLATE

        revision = quote(place.revision or "main", safe="")
        return HUGGINGFACE_CO_URL_TEMPLATE.format(
            repo_id=place.repository, revision=revision, filename=quote(place.path)
        )

    def look_at(self, headers: Mapping[str, str]) -> None:
        self.commit = headers.get("X-Repo-Commit", self.commit)
        linked = headers.get("X-Linked-ETag", self._linked)
        if self._linked not in ("", linked):
            raise self.replaced()
        self._linked = linked

    def _wrong(self, status: int, headers: Mapping[str, str]) -> Exception:
        code = headers.get("X-Error-Code", "")
        if code not in _REFUSALS:
            return super()._wrong(status, headers)
        number = errno.EACCES if code == "GatedRepo" else errno.ENOENT
        return OSError(number, _REFUSALS[code], self.name)  # one of the kind of its number


class _Listing(HubRanges):
    """What the hub says of a repository, which has no ranges."""

    def _url(self, place: HubPlace) -> str:
        from huggingface_hub.constants import ENDPOINT

        revision = f"/revision/{quote(place.revision, safe='')}" if place.revision else ""
        return f"{ENDPOINT}/api/models/{place.repository}{revision}"

    def _check(self, response: BaseHTTPResponse, start: int, stop: int) -> None:
        if response.status != 200 or start:
            raise self._wrong(response.status, response.headers)


def cached(place: HubPlace) -> str | None:
    """Return the path of a file of a commit in the hub's cache; None if it is not there."""
    from huggingface_hub.constants import HF_HUB_CACHE

    if not _IS_COMMIT.fullmatch(place.revision or ""):
        return None
    folder = f"models--{place.repository.replace('/', '--')}"
    path = os.path.join(HF_HUB_CACHE, folder, "snapshots", place.revision or "", place.path)
    return path if os.path.isfile(path) else None


def snapshot(url: str) -> str | None:
    """Return the path of a repository, or of what is in it, in the cache if that is all to ask."""
    place = HubPlace.parse(url)
    with extra("hub", url):
        from huggingface_hub import constants
    if not constants.is_offline_mode():
        return None
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        root = snapshot_download(place.repository, revision=place.revision)
        path = os.path.join(root, place.path)
    except LocalEntryNotFoundError:
        path = ""
    if not os.path.exists(path):
        raise FileNotFoundError(errno.ENOENT, _NOT_CACHED, str(place))
    return path


def list_repository(url: str) -> tuple[str, list[str]] | None:
    """Return a folder at the commit that its revision is now, and its files; None for a file."""
    place = HubPlace.parse(url)
    room = bytearray(_MOST_LISTED)
    n_bytes = _Listing(place).fill(0, memoryview(room))
    try:
        told = json.loads(room[:n_bytes])
        names = [str(file["rfilename"]) for file in told["siblings"]]
        commit = str(told["sha"])
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ParseError("the hub gives no list of its files", source=str(place)) from None
    if place.path and place.path in names:
        return None
    below = place.path and f"{place.path}/"
    inside = [name.removeprefix(below) for name in names if name.startswith(below)]
    if place.path and not inside:
        raise ParseError("the repository has no such file or folder", source=url)
    return f"{place._replace(revision=commit)}/", inside
