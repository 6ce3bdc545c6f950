"""Where outputs go: a path of this machine, or a bucket."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from anamnesis.base.errors import OutputError
from anamnesis.checkpoint.open import Checkpoint
from anamnesis.convert.plan.plan import Plan
from anamnesis.convert.request.request import Request
from anamnesis.convert.resume.destination import Destination, DirectoryDestination, FileDestination
from anamnesis.convert.resume.parts_folder import PartsFolder
from anamnesis.sources.bucket import store_of
from anamnesis.sources.urls import kind_of_url, shown_url

if TYPE_CHECKING:
    from anamnesis.convert.resume.bucket import BucketParts


def check_place(out: str) -> None:
    """Refuse an address where nothing is written, and a bucket that cannot be reached from here."""
    kind = kind_of_url(out)
    if kind == "bucket":
        store_of(out)
    elif kind is not None:
        raise OutputError(
            f"{shown_url(out)}: only s3://, gs:// and az:// are written to",
            remedy="write a folder, and upload it",
        )


def destination(out: str, plan: Plan, checkpoint: Checkpoint, request: Request) -> Destination:
    """Return where the output of a plan goes."""
    if kind_of_url(out) == "bucket":
        from anamnesis.convert.resume.bucket import BucketDestination  # only here: seldom asked for

        return BucketDestination(out, plan, checkpoint, request)
    kind = FileDestination if plan.directory is None else DirectoryDestination
    return kind(Path(os.path.abspath(out)), plan, checkpoint, request)


def parts_at(out: str) -> PartsFolder | BucketParts:
    """Return where the files of an output are kept that several processes make."""
    if kind_of_url(out) == "bucket":
        from anamnesis.convert.resume.bucket import BucketParts

        return BucketParts(out)
    return PartsFolder(Path(os.path.abspath(out)))
