"""Objects of buckets, in ranges: S3, Google's and Azure's."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import Any

from anamnesis.base.errors import ParseError
from anamnesis.sources.retries import PassingError, Ranges, extra

_CHUNK = 1 << 20
_NO_RANGE = "416 Range Not Satisfiable"  # what stores answer of an object without bytes
_TELL_CREDENTIALS = ("169.254.169.254", "metadata.google.internal")  # to machines of a cloud
_NO_KEY = re.compile(r"/(\.{0,2})/|[\0-\x1f\x7f]")
_CODE = re.compile(r"<Code>(\w+)</Code>.*?<Message>(.*?)</Message>", re.DOTALL)
_TRIES = re.compile(r"after (\d+) retries")


class BucketRanges(Ranges):
    """An object in a bucket."""

    def __init__(self, url: str) -> None:
        self.name = url
        self._store, self._key = store_of(url)

    def chunks(self, start: int, stop: int) -> Iterator[memoryview]:
        import obstore
        from obstore.exceptions import BaseError, PreconditionError

        known = self.size >= 0
        options: obstore.GetOptions = {"range": (start, stop)}
        if self.tag:
            options["if_match"] = self.tag
        try:
            found = obstore.get(self._store, self._key, options=options)
            meta = found.meta
            if not known:
                if not meta["e_tag"]:
                    raise ParseError("the bucket gives no ETag", source=self.name)
                self.tag, self.size = meta["e_tag"], meta["size"]
                self.modified_ns = int(meta["last_modified"].timestamp()) * 10**9
            elif meta["e_tag"] != self.tag:  # of a store that does not compare them itself
                raise self.replaced()
            for chunk in found.stream(_CHUNK):
                yield memoryview(chunk)
        except PreconditionError:
            raise self.replaced() from None
        except (BaseError, OSError) as error:
            if not known and _NO_RANGE in str(error):
                self.size = 0
                return
            failed = failure(error, self.name)
            if known and isinstance(failed, ConnectionError):
                raise PassingError(str(failed)) from None
            raise failed from None


def failure(error: Exception, name: str) -> Exception:
    """Return what an error of obstore's means, in one line."""
    kind = type(error).__name__
    if kind in ("FileNotFoundError", "NotFoundError"):
        return FileNotFoundError(errno.ENOENT, "no such object, or no such bucket", name)
    text = str(error).partition("\n\nDebug source")[0]
    found = _CODE.search(text)
    if found and found[1] in ("NoSuchBucket", "ContainerNotFound"):
        return FileNotFoundError(errno.ENOENT, "no such bucket", name)
    said = text.rpartition(" - ")[2].rpartition("status code: ")[2]
    line = " ".join((f"{found[1]}: {found[2]}" if found else said).split())[:200].rstrip(":")
    tries = _TRIES.search(text)
    line += f", {int(tries[1]) + 1} times" if tries else ""
    if kind in ("PermissionError", "PermissionDeniedError", "UnauthenticatedError"):
        return PermissionError(errno.EACCES, f"access is refused: {line}", name)
    if any(host in text for host in _TELL_CREDENTIALS):
        why = "no credentials in the environment; AWS_SKIP_SIGNATURE=true reads public buckets"
        return PermissionError(errno.EACCES, why, name)
    if isinstance(error, OSError) or kind == "GenericError":
        return ConnectionError(errno.ECONNABORTED, line, name)
    return ParseError(line, source=name)


@contextmanager
def failing(url: str) -> Iterator[None]:
    """Make one line of what obstore raises."""
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError) as error:
        raise failure(error, url) from None


def store_of(url: str) -> tuple[Any, str]:
    """Return the bucket of an address, and the key in it."""
    scheme, _, rest = url.partition("://")
    bucket, _, key = rest.partition("/")
    if not bucket:
        raise ParseError(f"is not {scheme}://BUCKET/KEY", source=url)
    if key.strip("/") and _NO_KEY.search(f"/{key.rstrip('/')}/"):
        what = "has a key with an empty part, a part . or .., or a control character"
        raise ParseError(f"{what}, which bucket clients do not accept", source=url)
    with extra("remote", url):
        return _store(f"{scheme.lower()}://{bucket}"), key


@cache
def _store(url: str) -> Any:
    """Return a bucket, its region and credentials from the environment."""
    from obstore.store import from_url

    # A user's own endpoint, such as MinIO's, may have no certificate; other stores settle it alone.
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    options: Any = {"allow_http": True} if endpoint.startswith("http://") else None
    retries: Any = {"max_retries": 4, "retry_timeout": timedelta(seconds=60)}
    with failing(url):
        return from_url(url, client_options=options, retry_config=retries)


def list_bucket(url: str) -> dict[str, int]:
    """Return the keys below a folder's, without its name, and their sizes."""
    import obstore

    store, folder = _folder_of(url)
    with failing(url):
        found = [item for chunk in obstore.list(store, folder or None) for item in chunk]
    return {
        item["path"].removeprefix(folder): item["size"]
        for item in found
        if item["path"].startswith(folder) and item["path"] != folder
    }


def names_in(url: str) -> set[str]:
    """Return the names of the objects and folders in a folder."""
    import obstore

    store, folder = _folder_of(url)
    with failing(url):
        found = obstore.list_with_delimiter(store, folder or None)
    keys = [*found["common_prefixes"], *(item["path"] for item in found["objects"])]
    return {key.removeprefix(folder).rstrip("/") for key in keys if key != folder}


def size_of(url: str) -> int | None:
    """Return the size of an object; None if it is not there."""
    import obstore

    store, key = store_of(url)
    try:
        with failing(url):
            return obstore.head(store, key)["size"]
    except FileNotFoundError:
        return None


def _folder_of(url: str) -> tuple[Any, str]:
    store, key = store_of(url)
    return store, f"{key.strip('/')}/".lstrip("/")
