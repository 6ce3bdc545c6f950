"""Which share of an output's files a process makes: its number, of how many."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_SHARE = re.compile(r"(?P<number>[0-9]{1,6})/(?P<of>[0-9]{1,6})|auto(/[1-9][0-9]{0,5})?|commit")
_ENGINE = re.compile(r"processes:[1-9][0-9]{0,3}|dask://[^/:]+:[0-9]+/?")


class Share(NamedTuple):
    """One of some shares; the first is 1."""

    number: int
    of: int


def check_part(name: str, text: Any) -> None:
    """Refuse what is no share of a whole."""
    found = _SHARE.fullmatch(text) if isinstance(text, str) else None
    number, of = found.group("number", "of") if found else ("0", "0")
    if number is not None and not 1 <= int(number) <= int(of):
        raise ValueError(
            f"{name} must be I/N with I from 1 to N, 'auto', 'auto/N' or 'commit', not {text!r}"
        )


def check_executor(name: str, value: Any) -> None:
    """Refuse what is no executor, and no text that names one."""
    if isinstance(value, str) and not _ENGINE.fullmatch(value):
        raise ValueError(f"{name} must be processes:N or dask://HOST:PORT, not {value!r}")
    if not isinstance(value, str) and not callable(getattr(value, "submit", None)):
        raise ValueError(f"{name} must be a concurrent.futures.Executor, not {value!r}")


def share_of(text: str, variables: Mapping[str, str] = os.environ) -> Share:
    """Return the share that a text means, by what Slurm or Kubernetes say of this process."""
    number, _, of = text.partition("/")
    if number != "auto":
        return Share(int(number), int(of))
    found = _slurm(variables) or _kubernetes(variables, int(of or 0))
    if found is None:
        raise ValueError(f"part: neither Slurm nor Kubernetes numbers this process: {_WRITE}")
    if (of and found.of != int(of)) or not 1 <= found.number <= found.of:
        raise ValueError(f"part: this is process {found.number} of {found.of}: {_WRITE}")
    return found


_WRITE = "write I/N instead of auto"


def _slurm(variables: Mapping[str, str]) -> Share | None:
    """Return the place in a job array, and in a step of several tasks."""

    def value(name: str, usual: int) -> int:
        text = variables.get(f"SLURM_{name}", str(usual))
        if not text.isdecimal():
            raise ValueError(f"part: SLURM_{name} is {text!r}: {_WRITE}")
        return int(text)

    if not variables.keys() & {"SLURM_ARRAY_TASK_ID", "SLURM_PROCID"}:
        return None
    least, step = value("ARRAY_TASK_MIN", 0), max(1, value("ARRAY_TASK_STEP", 1))
    arrays = value("ARRAY_TASK_COUNT", 1)
    if (value("ARRAY_TASK_MAX", least + (arrays - 1) * step) - least) // step + 1 != arrays:
        raise ValueError(f"part: Slurm's array has gaps: {_WRITE}")
    tasks = value("NTASKS", 1)
    place = (value("ARRAY_TASK_ID", least) - least) // step
    return Share(place * tasks + value("PROCID", 0) + 1, arrays * tasks)


def _kubernetes(variables: Mapping[str, str], of: int) -> Share | None:
    """Return the place in an indexed job, which does not say how many there are."""
    index = variables.get("JOB_COMPLETION_INDEX", "")
    if not index.isdecimal():
        return None
    if not of:
        raise ValueError("part: Kubernetes does not say how many pods there are: write auto/N")
    return Share(int(index) + 1, of)
