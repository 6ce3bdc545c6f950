"""parse and inspect of headers, beside what Python's json module takes to read the same text.

And parse of torch's files, beside torch.load with mmap, which reads little else.

The 100,000 tensors are about those of a mixture of experts; 300 are those of a small dense model.
"""

from __future__ import annotations

import json
from pathlib import Path

import anamnesis as an

from .figures import figure, skipped_if_missing
from .models import header_text, peak_memory_of, temporary_folder, write_many, write_state


class Header:
    """A model of some number of tensors; its data is never read."""

    params = (300, 100_000)
    param_names = ("tensors",)
    timeout = 300

    def setup(self, n_tensors: int) -> None:
        self.folder = temporary_folder()
        self.path = Path(self.folder.name) / "few.safetensors"
        write_many(self.path, 2)
        self.time_parse_and_inspect(2)  # what is imported when first needed
        self.path = Path(self.folder.name) / "model.safetensors"
        write_many(self.path, n_tensors)

    def teardown(self, n_tensors: int) -> None:
        self.folder.cleanup()

    @figure("safetensors header: parse")
    def time_parse(self, n_tensors: int) -> None:
        an.parse(self.path).close()

    @figure("safetensors header: parse and inspect")
    def time_parse_and_inspect(self, n_tensors: int) -> None:
        with an.parse(self.path) as model:
            model.inspect()

    @figure("safetensors header: json.loads of the text")
    def time_peer_json(self, n_tensors: int) -> None:
        json.loads(header_text(self.path))

    @figure("safetensors header: peak memory of the process")
    def peakmem_parse_and_inspect(self, n_tensors: int) -> None:
        self.time_parse_and_inspect(n_tensors)

    @figure("safetensors header: memory added", "MiB")
    def track_memory(self, n_tensors: int) -> float:
        """Over what the process has before, where peakmem counts it in."""
        return peak_memory_of(lambda: self.time_parse_and_inspect(n_tensors)) / (1 << 20)


class TorchFile:
    """A state dictionary of some number of small tensors."""

    params = (2, 100, 1_000)
    param_names = ("tensors",)

    def setup(self, n_tensors: int) -> None:
        self.folder = temporary_folder()
        self.path = Path(self.folder.name) / "model.pth"
        with skipped_if_missing():  # torch makes the file
            write_state(self.path, n_tensors)
        self.time_parse(n_tensors)
        self.time_peer_torch_load(n_tensors)

    def teardown(self, n_tensors: int) -> None:
        self.folder.cleanup()

    @figure("torch file: parse")
    def time_parse(self, n_tensors: int) -> None:
        an.parse(self.path).close()

    @figure("torch file: torch.load with mmap")
    def time_peer_torch_load(self, n_tensors: int) -> None:
        import torch

        torch.load(self.path, mmap=True, weights_only=True)
