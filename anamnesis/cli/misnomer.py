"""Extensions that lie: a warning where a file's content says otherwise."""

from __future__ import annotations

from anamnesis.formats.writers import WRITERS, promised_format

__all__ = ["misnomer"]


def misnomer(path: str, format_id: str, format: str) -> str | None:
    """Return a warning if a file's extension promises another format than its content is of."""
    promised = promised_format(path)
    if promised is None or format_id == promised:
        return None
    return f"{path}: is {format} by its content, not {WRITERS[promised].title} as its name says"
