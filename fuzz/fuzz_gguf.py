"""Any byte string is a GGUF model or an AnamnesisError, whatever is then asked of it.

Run `python fuzz/fuzz_gguf.py -max_total_time=600` (needs atheris), or call `check` with bytes. A
folder named on the command line takes the corpus; without one it is thrown away.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

MAGIC = b"GGUF"


def check(data: bytes) -> None:
    """Parse, list, inspect, read and convert `data`; nothing but AnamnesisError may come out."""
    import anamnesis as an

    if not data.startswith(MAGIC):
        data = MAGIC + data[len(MAGIC) :]
    try:
        model = an.parse(data)
    except an.AnamnesisError:
        return
    with model:
        use(model)


def use(model: object) -> None:
    """Ask a parsed model for everything."""
    import anamnesis as an
    from anamnesis.listing import listing, listing_dict
    from anamnesis.model import Model

    assert isinstance(model, Model)
    inspection = model.inspect()
    str(inspection)
    json.dumps(inspection.to_dict())
    for tensor in model.stored.values():
        assert tensor.offset >= 0
        assert tensor.offset + tensor.n_bytes <= tensor.source.size or tensor.n_bytes == 0
    for act in (
        lambda: list(listing(model, "fuzz", metadata=True)),
        lambda: json.dumps(listing_dict(model)),
        lambda: [tensor.numpy() for tensor in model.values()],
        lambda: model.remember_to_bytes(threads=1),
        lambda: model.remember_to_bytes(threads=1, allow_unknown=True),
    ):
        with suppress(an.AnamnesisError):
            act()


def main() -> None:
    """Fuzz until libFuzzer's options say stop."""
    import atheris  # type: ignore[import-untyped]
    from gguf_seeds import corpus

    with atheris.instrument_imports(include=["anamnesis"]):
        import anamnesis.listing
        import anamnesis.model
        import anamnesis.remember  # noqa: F401
    atheris.Setup([*sys.argv, corpus()], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
