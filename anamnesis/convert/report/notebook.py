"""What a notebook shows of a model."""

from __future__ import annotations

from anamnesis.base.html import html_table
from anamnesis.base.printable import format_size
from anamnesis.schemes.detect.ledger import Ledger

_MOST_ROWS = 50


def model_html(ledger: Ledger, format: str) -> str:
    """Return a table of a model's schemes, and one of its first weights."""
    weights = list(ledger.weights.values())
    sizes: dict[str, tuple[int, int]] = {}
    for weight in weights:
        n, n_bytes = sizes.get(weight.scheme, (0, 0))
        sizes[weight.scheme] = n + 1, n_bytes + weight.n_bytes
    schemes = html_table(
        [(scheme, f"{n:,}", format_size(n_bytes)) for scheme, (n, n_bytes) in sizes.items()],
        head=("scheme", "weights", "stored"),
        caption=format,
    )
    rows = [(one.name, one.scheme, str(list(one.shape))) for one in weights[:_MOST_ROWS]]
    problems = list(ledger.problems.items())
    rows += [(name, "unreadable", str(error)) for name, error in problems[:_MOST_ROWS]]
    n_all = len(ledger.weights.keys() | ledger.problems.keys())
    if n_all > len(rows):
        rows.append(("", f"and {n_all - len(rows):,} more", ""))
    return schemes + html_table(rows, head=("name", "scheme", "shape"))
