"""What comes before any tensor data is read, of published models in sparse files: headers, plan."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import anamnesis as an

from . import deepseek, gpt_oss
from .figures import figure
from .models import peak_memory_of, temporary_folder

FULL = SimpleNamespace(free=0)
# name -> what writes its directory
MODELS = {"DeepSeek-V3, 670 GB": deepseek.write_sparse, "gpt-oss-120b, 65 GB": gpt_oss.write_sparse}


class Planning:
    """A directory, and a disk that is full."""

    timeout = 300
    params = tuple(MODELS)
    param_names = ("model",)

    def setup(self, model: str) -> None:
        self.folder = temporary_folder()
        self.source = Path(self.folder.name) / "model"
        self.source.mkdir()
        MODELS[model](self.source)

    def teardown(self, model: str) -> None:
        self.folder.cleanup()

    @figure("inspect")
    def time_inspect(self, model: str) -> None:
        with an.parse(self.source) as parsed:
            parsed.inspect()

    @figure("plan, refuse for want of space")
    def time_plan(self, model: str) -> None:
        with (
            an.parse(self.source) as parsed,
            mock.patch.object(shutil, "disk_usage", return_value=FULL),
            contextlib.suppress(OSError),
        ):
            parsed.remember(Path(self.folder.name) / "out")

    @figure("memory added by planning", "MiB")
    def track_memory(self, model: str) -> float:
        return peak_memory_of(lambda: self.time_plan(model)) / 2**20
