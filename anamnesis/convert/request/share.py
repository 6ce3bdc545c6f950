"""Which share of an output's files a process makes, and by what others make them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_SHARE = re.compile(r"([1-9][0-9]{0,5}|auto)/([1-9][0-9]{0,5})|auto")
_ENGINE = re.compile(r"processes:[1-9][0-9]{0,3}|dask://[^/:]+:[0-9]+/?")


class Share(NamedTuple):
    """One of some shares; the first is 1."""

    number: int
    of: int


def share_of(text: str, variables: Mapping[str, str] = os.environ) -> Share:
    """Return the share that a text means, by what Slurm or Kubernetes say of this process."""
    found = _SHARE.fullmatch(text)
    if found is None:
        raise ValueError(f"part: write I/N, such as 1/4; auto, auto/N or commit; not {text!r}")
    of = int(found[2] or 0)
    share = Share(int(found[1]), of) if found[1] not in (None, "auto") else _auto(variables, of)
    if share.number > share.of or of not in (0, share.of):
        raise ValueError(f"part: there is no process {share.number} of {share.of}: write I/N")
    return share


def _auto(variables: Mapping[str, str], of: int) -> Share:
    """Return the place among a job's pods, or in a job array and a step of several tasks."""

    def value(name: str, usual: int | None = None) -> int:
        text = variables.get(name, str(usual))
        if not text.isdecimal():
            raise ValueError(f"part: {name} is {text!r}, which numbers no process: write I/N")
        return int(text)

    if "JOB_COMPLETION_INDEX" in variables:
        if not of:
            raise ValueError("part: Kubernetes does not say how many pods there are: write auto/N")
        return Share(value("JOB_COMPLETION_INDEX") + 1, of)
    if not variables.keys() & {"SLURM_ARRAY_TASK_ID", "SLURM_PROCID"}:
        raise ValueError("part: neither Slurm nor Kubernetes numbers this process: write I/N")
    least, tasks = value("SLURM_ARRAY_TASK_MIN", 0), value("SLURM_NTASKS", 1)
    place = value("SLURM_ARRAY_TASK_ID", least) - least
    place //= max(1, value("SLURM_ARRAY_TASK_STEP", 1))
    number = place * tasks + value("SLURM_PROCID", 0) + 1
    return Share(number, value("SLURM_ARRAY_TASK_COUNT", 1) * tasks)


def check_executor(value: Any) -> None:
    """Refuse what is no executor, and no text that names one."""
    if isinstance(value, str) and not _ENGINE.fullmatch(value):
        raise ValueError(f"executor: write processes:N or dask://HOST:PORT, not {value!r}")
    if not isinstance(value, str) and not callable(getattr(value, "submit", None)):
        raise ValueError(f"executor: give a concurrent.futures.Executor, not {value!r}")
