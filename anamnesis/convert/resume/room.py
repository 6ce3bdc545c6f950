"""Room for an output: reserved before anything is written, or refused."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from anamnesis.base.printable import format_size

NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


def no_room(folder: Path, out: Path, need: int, code: int | None = errno.ENOSPC) -> OSError:
    """Return the error that an output has no room in a folder."""
    why = f"{os.strerror(code or 0)}: the output takes {format_size(need)}"
    if code == errno.ENOSPC:
        why += f", {format_size(shutil.disk_usage(folder).free)} are free"
    return OSError(code, why, str(out))


def allocate(fd: int, size: int) -> None:
    """Give a file its length and, where the system can, its blocks."""
    if size and hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
        else:
            return
    os.ftruncate(fd, size)
