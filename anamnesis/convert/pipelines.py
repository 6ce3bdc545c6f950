"""A pipeline's output: each model in its folder, and the files that go with them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

from anamnesis.base.errors import OutputError
from anamnesis.checkpoint.file_names import PARTIAL_SUFFIX
from anamnesis.checkpoint.pipelines import INDEX_NAME, Pipeline
from anamnesis.convert.report.joined import PipelineReport, joined
from anamnesis.convert.report.report import Report
from anamnesis.convert.request.form import Form
from anamnesis.sources.urls import kind_of_url


class PipelineOutput:
    """The output of a pipeline."""

    def __init__(self, pipeline: Pipeline, out: str, form: Form) -> None:
        if form.becomes_file(directory=True):
            raise OutputError(
                f"{pipeline.root}: is a pipeline, whose models stay folders of safetensors; convert"
                f" one of them, such as {os.path.join(pipeline.root, pipeline.models[0])}"
            )
        if kind_of_url(out):
            raise OutputError(
                f"{out}: a pipeline becomes a folder on this machine; upload that, or convert its"
                f" models one by one, such as {os.path.join(pipeline.root, pipeline.models[0])}"
            )
        self.pipeline = pipeline
        self.out = out

    def is_there(self) -> bool:
        """Return whether the output was finished: its index is written last."""
        return os.path.isfile(os.path.join(self.out, INDEX_NAME))

    def write(
        self,
        write: Callable[[str, str], Report | None],
        *,
        replaces: bool,
        variant: str | None = None,
    ) -> PipelineReport:
        """Write each model, and then what goes with them."""
        self._check(replaces=replaces)
        reports = {}
        for name in self.pipeline.models:
            report = write(os.path.join(self.pipeline.root, name), os.path.join(self.out, name))
            if report is not None:
                reports[name] = report
        for name in self.pipeline.copied:
            source, target = os.path.join(self.pipeline.root, name), os.path.join(self.out, name)
            if os.path.islink(target):
                raise OutputError(f"{target}: is a link; name another output")
            folder = os.path.join(os.path.realpath(self.out), os.path.dirname(name))
            if os.path.realpath(os.path.dirname(target)) != folder.rstrip(os.sep):
                raise OutputError(f"{target}: leads out of the output; name another output")
            os.makedirs(os.path.dirname(target) or os.curdir, exist_ok=True)
            made = f"{target}{PARTIAL_SUFFIX}"
            shutil.copyfile(source, made)
            os.replace(made, target)
        lacking = [] if variant is None else self.pipeline.lacking(variant)
        notes = [f"no weights of variant {variant!r}, so the plain ones: {', '.join(lacking)}"]
        left = self.pipeline.left_out
        return joined(self.out, reports, self.pipeline.copied, left, notes if lacking else ())

    def _check(self, *, replaces: bool) -> None:
        root, out = os.path.realpath(self.pipeline.root), os.path.realpath(self.out)
        if root == out:
            raise OutputError(f"{self.out}: is the input; name another output")
        if os.path.commonpath([root, out]) in (root, out):
            raise OutputError(
                f"{self.out}: lies inside the input or around it; name another output"
            )
        if os.path.lexists(self.out) and not os.path.isdir(self.out):
            raise OutputError(f"{self.out}: is a file; a pipeline becomes a directory")
        for name in self.pipeline.copied if not replaces else ():
            target = os.path.join(self.out, name)
            if os.path.lexists(target):
                raise OutputError(f"{target}: exists", remedy="force=True replaces it")
