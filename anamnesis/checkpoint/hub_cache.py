"""Where the cache of the Hugging Face hub keeps a repository.

All files of a snapshot, those in its folders too, are links into the repository's `blobs`.
"""

from __future__ import annotations

import os
import re

_REPOSITORY = re.compile(r"(models|datasets|spaces)--.+", re.DOTALL)


def repository_of(path: str) -> tuple[str, str] | None:
    """Return the repository's folder, and the snapshot's, of a path in a snapshot or of one."""
    # Nothing is looked up: only the text of `path`, which is absolute, counts. None if the path is
    # elsewhere.
    folder, name = os.path.split(path)
    while name:
        repository, last = os.path.split(folder)
        if last == "snapshots" and _REPOSITORY.fullmatch(os.path.basename(repository)):
            return repository, os.path.join(folder, name)
        folder, name = os.path.split(folder)
    return None
