"""Files of the Hugging Face hub: their places, their readers, and its cache."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping

from anamnesis.base.errors import ParseError
from anamnesis.sources.http import HttpRanges
from anamnesis.sources.retried_ranges import extra
from anamnesis.sources.urls import HubPlace

_IS_COMMIT = re.compile("[0-9a-f]{40}")
_ACCESS = "HF_TOKEN or `hf auth login` gives access"
_NOT_CACHED = "is not in the hub's cache, and HF_HUB_OFFLINE is set"
# By what the hub calls an error, as huggingface_hub's exceptions do.
_REFUSALS = {
    "GatedRepo": f"accept its terms on the hub; {_ACCESS}",
    "RepoNotFound": f"no such repository, or a private one; {_ACCESS}",
    "RevisionNotFound": "the repository has no such revision",
    "EntryNotFound": "the repository has no such file",
}


class HubRanges(HttpRanges):
    """A file of a repository, at the server that keeps it."""

    def __init__(self, place: HubPlace) -> None:
        from huggingface_hub import hf_hub_url
        from huggingface_hub.utils import build_hf_headers

        url = hf_hub_url(place.repository, place.path, revision=place.revision)
        super().__init__(url, build_hf_headers().get("authorization"))
        self.name = str(place)
        self.commit = ""

    def look_at(self, headers: Mapping[str, str]) -> None:
        self.commit = headers.get("X-Repo-Commit", self.commit)
        linked = headers.get("X-Linked-ETag", self._linked)
        if self._linked not in ("", linked):
            raise self.replaced()
        self._linked = linked

    def _wrong(self, status: int, headers: Mapping[str, str]) -> Exception:
        refused = _refusal(headers.get("X-Error-Code", ""), self.name)
        return refused or super()._wrong(status, headers)


def _refusal(code: str, name: str) -> OSError | None:
    if code not in _REFUSALS:
        return None
    number = errno.EACCES if code == "GatedRepo" else errno.ENOENT
    return OSError(number, _REFUSALS[code], name)  # which makes one of the kind of its number


def cached(place: HubPlace) -> str | None:
    """Return the path of a file of a commit in the hub's cache; None if it is not there."""
    from huggingface_hub import try_to_load_from_cache

    if not _IS_COMMIT.fullmatch(place.revision or ""):
        return None
    found = try_to_load_from_cache(place.repository, place.path, revision=place.revision)
    return found if isinstance(found, str) else None


def snapshot(url: str) -> str | None:
    """Return the path of a repository, or of what is in it, in the cache if that is all to ask."""
    place = HubPlace.parse(url)
    with extra("hub", url):
        from huggingface_hub import snapshot_download
        from huggingface_hub.constants import is_offline_mode
        from huggingface_hub.errors import LocalEntryNotFoundError
    if not is_offline_mode():
        return None
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
    from huggingface_hub import HfApi

    place = HubPlace.parse(url)
    try:
        info = HfApi().model_info(place.repository, revision=place.revision, timeout=30)
    except Exception as error:  # of its own, of its HTTP client's, or of the system
        kind = type(error).__name__.removesuffix("Error").replace("Repository", "Repo")
        text = " ".join(str(error).split())[:300]
        if isinstance(error, ValueError):
            raise ParseError(text, source=str(place)) from None
        told = f"the hub cannot be asked: {text}"
        unknown = ConnectionError(errno.ECONNABORTED, told, str(place))
        raise _refusal(kind, str(place)) or unknown from None
    names = [file.rfilename for file in info.siblings or ()]
    if place.path and place.path in names:
        return None
    below = place.path and f"{place.path}/"
    inside = [name.removeprefix(below) for name in names if name.startswith(below)]
    if place.path and not inside:
        raise ParseError("the repository has no such file or folder", source=url)
    return f"{place._replace(revision=info.sha)}/", inside
