"""Stopping a long call from another thread, or from a signal handler."""

from __future__ import annotations

from typing import Any, Protocol

from anamnesis.base.errors import Cancelled
from anamnesis.base.printable import kind_of


class Cancel(Protocol):
    """What a caller sets to stop a call: a `threading.Event`, or anything that is like one."""

    def is_set(self) -> bool:
        """Return whether the call shall stop."""


def check_cancel(cancel: Any) -> None:
    """Refuse what nobody can ask whether it is set."""
    if cancel is not None and not callable(getattr(cancel, "is_set", None)):
        raise TypeError(f"cancel must have is_set(), as threading.Event has, not {kind_of(cancel)}")


def stop_if(cancel: Cancel | None) -> None:
    """Stop if that is wished, or cannot be found out: nothing is left behind then either."""
    if cancel is None:
        return
    try:
        is_set = cancel.is_set()
    except Exception as error:
        raise Cancelled(f"stopped, for cancel.is_set() failed: {error!r}") from error
    if is_set:
        raise Cancelled("cancelled by the caller")
