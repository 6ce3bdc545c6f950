"""Limits only turn results into LimitExceeded, and what comes out is within them.

Run `python fuzz/fuzz_gguf_limits.py -max_total_time=600` (needs atheris), or call `check`. The
first bytes of an input are the limits, the others the file.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from fuzz_gguf import MAGIC

_HEAD = 4


def check(data: bytes) -> None:
    """Parse `data` with limits and without."""
    import anamnesis as an

    head, body = data[:_HEAD].ljust(_HEAD, b"\0"), data[_HEAD:]
    body = MAGIC + body[len(MAGIC) :]
    limits = an.ParseLimits(
        max_single_alloc=None if head[0] > 250 else head[0] * 4,
        max_total_bytes=None if head[1] > 250 else head[1] * 16,
        max_item_count=None if head[2] > 250 else head[2],
    )
    free = _outcome(body, an.ParseLimits())
    limited = _outcome(body, limits)
    if isinstance(limited, an.LimitExceeded):
        return
    if isinstance(limited, Exception):
        assert str(limited) == str(free)
        return
    assert not isinstance(free, Exception)
    assert list(limited.stored) == list(free.stored)
    assert list(limited.metadata) == list(free.metadata)
    n_items = len(limited.stored) + len(limited.metadata)
    assert limits.max_item_count is None or n_items <= limits.max_item_count
    _read(limited, limits)


def _outcome(body: bytes, limits: object) -> object:
    import anamnesis as an

    try:
        return an.parse(body, limits=limits)  # type: ignore[arg-type]
    except an.AnamnesisError as error:
        return error


def _read(model: object, limits: object) -> None:
    """Read every value; each is within `max_single_alloc` or refused."""
    import anamnesis as an
    from anamnesis.model import Model

    assert isinstance(model, Model)
    assert isinstance(limits, an.ParseLimits)
    most = limits.max_single_alloc
    for key in model.metadata:
        try:
            value = model.metadata[key]
        except an.AnamnesisError:
            continue
        assert most is None or not isinstance(value, (str, list)) or len(value) <= most
    for tensor in model.values():
        try:
            array = tensor.numpy()
        except an.AnamnesisError:
            continue
        assert most is None or array.nbytes <= most


def main() -> None:
    """Fuzz until libFuzzer's options say stop."""
    import atheris  # type: ignore[import-untyped]
    from gguf_seeds import seeds

    folder = Path(tempfile.mkdtemp(prefix="fuzz-gguf-"))
    for number, seed in enumerate(seeds()):
        for name, head in (("wide", b"\xff\xff\xff\0"), ("tight", b"\x40\x40\x10\0")):
            (folder / f"{name}-{number:03d}").write_bytes(head + seed)
    with atheris.instrument_imports(include=["anamnesis"]):
        import anamnesis.model  # noqa: F401
    atheris.Setup([*sys.argv, str(folder)], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
