"""Objects of buckets, in ranges: S3, Google's and Azure's."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import Any

from anamnesis.base.errors import ParseError
from anamnesis.sources.ranges import PassingError, Ranges, extra

_CHUNK = 1 << 20
_NO_RANGE = "416 Range Not Satisfiable"  # what stores answer of an object without bytes
_TELL_CREDENTIALS = ("169.254.169.254", "metadata.google.internal")  # to machines of a cloud


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
            elif meta["size"] != self.size:
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
    text = " ".join(str(error).partition("Debug source")[0].split())[:300]
    if kind in ("PermissionError", "PermissionDeniedError", "UnauthenticatedError"):
        return PermissionError(errno.EACCES, f"access is refused: {text}", name)
    if any(host in text for host in _TELL_CREDENTIALS):
        why = "no credentials in the environment; AWS_SKIP_SIGNATURE=true reads public buckets"
        return PermissionError(errno.EACCES, why, name)
    if isinstance(error, OSError) or kind == "GenericError":
        return ConnectionError(errno.ECONNABORTED, text, name)
    return ParseError(text, source=name)


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
    with extra("remote", url):
        return _store(f"{scheme.lower()}://{bucket}"), key


@cache
def _store(url: str) -> Any:
    """Return a bucket, its region and credentials from the environment."""
    from obstore.store import from_url

    # The user's own endpoint, such as MinIO's, may have no certificate.
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    options: Any = {"allow_http": endpoint.startswith("http://")}
    retries: Any = {"max_retries": 4, "retry_timeout": timedelta(seconds=60)}
    with failing(url):
        return from_url(url, client_options=options, retry_config=retries)


def list_bucket(url: str) -> dict[str, int]:
    """Return the keys below a folder's, without its name, and their sizes."""
    import obstore

    store, key = store_of(url)
    folder = f"{key.rstrip('/')}/".lstrip("/")
    with failing(url):
        found = [item for chunk in obstore.list(store, folder or None) for item in chunk]
    return {
        item["path"].removeprefix(folder): item["size"]
        for item in found
        if item["path"].startswith(folder) and item["path"] != folder
    }
