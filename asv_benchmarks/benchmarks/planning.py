"""What comes before any tensor data is read, for a checkpoint of 670 GB: headers and the plan."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import anamnesis as an

from .deepseek import write_directory
from .figures import figure
from .models import peak_memory_of, temporary_folder

FULL = SimpleNamespace(free=0)


class DeepSeek:
    """A directory with DeepSeek-V3's names and shapes, in sparse files, and a disk that is full."""

    timeout = 300

    def setup(self) -> None:
        self.folder = temporary_folder()
        self.source = Path(self.folder.name) / "model"
        self.source.mkdir()
        write_directory(self.source)

    def teardown(self) -> None:
        self.folder.cleanup()

    @figure("670 GB: inspect")
    def time_inspect(self) -> None:
        with an.parse(self.source) as model:
            model.inspect()

    @figure("670 GB: plan, refuse for want of space")
    def time_plan(self) -> None:
        with (
            an.parse(self.source) as model,
            mock.patch.object(shutil, "disk_usage", return_value=FULL),
            contextlib.suppress(OSError),
        ):
            model.remember(Path(self.folder.name) / "out")

    @figure("670 GB: memory added by planning", "MiB")
    def track_memory(self) -> float:
        return peak_memory_of(self.time_plan) / 2**20
