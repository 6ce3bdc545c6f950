"""A GGUF header with a vocabulary as large as the largest: parsed, and all of it read.

262,144 tokens and 514,906 merges are those of gemma-4; gguf-py takes some twenty seconds for them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

import anamnesis as an

from .figures import figure, skipped_if_missing
from .models import peak_memory_of, temporary_folder

TOKENS, MERGES = 262_144, 514_906
U32, F32, STRING, ARRAY = 4, 6, 8, 9


def string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def strings(key: str, texts: Iterable[str], n: int) -> bytes:
    head = string(key) + struct.pack("<IIQ", ARRAY, STRING, n)
    return head + b"".join(map(string, texts))


def numbers(key: str, kind: int, code: str, n: int) -> bytes:
    head = string(key) + struct.pack("<IIQ", ARRAY, kind, n)
    return head + struct.pack(f"<{n}{code}", *range(n))


def vocabulary() -> bytes:
    """Return a header without tensors; strings are about as long as real ones."""
    keys = [
        strings("tokenizer.ggml.tokens", (f"▁tok{i % 99_991}" for i in range(TOKENS)), TOKENS),
        numbers("tokenizer.ggml.scores", F32, "f", TOKENS),
        numbers("tokenizer.ggml.token_type", U32, "I", TOKENS),
        strings(
            "tokenizer.ggml.merges", (f"▁a{i % 977} b{i % 983}" for i in range(MERGES)), MERGES
        ),
        *(string(f"gemma.key_{i}") + struct.pack("<II", U32, i) for i in range(40)),
    ]
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys)) + b"".join(keys)


class _Header:
    """The header alone; there are no tensors."""

    timeout = 300

    def setup(self) -> None:
        self.folder = temporary_folder()
        self.path = Path(self.folder.name) / "model.gguf"
        self.path.write_bytes(vocabulary())

    def teardown(self) -> None:
        self.folder.cleanup()


class Vocabulary(_Header):
    """The header by this package, and its bytes."""

    @figure("GGUF vocabulary: parse and inspect")
    def time_parse_and_inspect(self) -> None:
        with an.parse(self.path) as model:
            model.inspect()

    @figure("GGUF vocabulary: read all of it")
    def time_read_all_arrays(self) -> None:
        with an.parse(self.path) as model:
            dict(model.metadata)

    @figure("GGUF vocabulary: its bytes alone")
    def time_peer_bytes_alone(self) -> None:
        self.path.read_bytes()

    @figure("GGUF vocabulary: memory added", "MiB")
    def track_memory(self) -> float:
        """Over what the process has before."""
        return peak_memory_of(self.time_parse_and_inspect) / (1 << 20)


class ByGgufPy(_Header):
    """The same file by the canonical reader, once: it has no way to leave the arrays out."""

    number = 1
    repeat = 1
    rounds = 1
    warmup_time = 0

    def setup(self) -> None:
        with skipped_if_missing():
            import gguf  # noqa: F401
        super().setup()

    @figure("GGUF vocabulary: gguf-py reads all of it")
    def time_peer_gguf_py(self) -> None:
        from gguf import GGUFReader

        for field in GGUFReader(self.path).fields.values():
            field.contents()
