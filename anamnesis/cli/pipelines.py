"""Where a pipeline's models go, and the files that go with them."""

from __future__ import annotations

import os
import shutil

from anamnesis.base.errors import OutputError
from anamnesis.base.printable import abbreviate
from anamnesis.checkpoint.file_names import PARTIAL_SUFFIX
from anamnesis.checkpoint.pipelines import INDEX_NAME, components, files_beside
from anamnesis.cli.naming import Naming


class PipelineOutput:
    """The output of a pipeline."""

    def __init__(self, path: str, out: str, naming: Naming) -> None:
        names = components(path)
        if naming.form.becomes_file(directory=True):
            raise OutputError(
                f"{path}: is a pipeline, whose models stay folders of safetensors; convert one of"
                f" them, such as {os.path.join(path, names[0])}"
            )
        self.out = out
        self.inputs = {os.path.join(path, name): os.path.join(out, name) for name in names}
        self._path = path
        self._copied, self.left = files_beside(path, names)

    def is_there(self) -> bool:
        """Tell whether the output was finished: its index is written last."""
        return os.path.isfile(os.path.join(self.out, INDEX_NAME))

    def check(self, *, replaces: bool) -> None:
        """Refuse an output that is the input, lies in it, or has other files than its own."""
        root, out = os.path.realpath(self._path), os.path.realpath(self.out)
        if root == out:
            raise OutputError(f"{self.out}: is the input; name another output")
        if os.path.commonpath([root, out]) in (root, out):
            raise OutputError(
                f"{self.out}: lies inside the input or around it; name another output"
            )
        if os.path.lexists(self.out) and not os.path.isdir(self.out):
            raise OutputError(f"{self.out}: is a file; a pipeline becomes a directory")
        there = [name for name in self._copied if os.path.lexists(os.path.join(self.out, name))]
        if there and not replaces:
            name = os.path.join(self.out, there[0])
            raise OutputError(f"{name}: exists", remedy="force=True replaces it")

    def copy_rest(self) -> str:
        """Copy what goes with the models, the index last; return a sentence about it."""
        for name in self._copied:
            source, target = os.path.join(self._path, name), os.path.join(self.out, name)
            if os.path.islink(target):
                raise OutputError(f"{target}: is a link; name another output")
            if os.path.realpath(os.path.dirname(target)) != os.path.join(
                os.path.realpath(self.out), os.path.dirname(name)
            ).rstrip(os.sep):
                raise OutputError(f"{target}: leads out of the output; name another output")
            os.makedirs(os.path.dirname(target) or os.curdir, exist_ok=True)
            made = f"{target}{PARTIAL_SUFFIX}"
            shutil.copyfile(source, made)
            os.replace(made, target)
        n = len(self._copied)
        left = f"; left out, for they hold weights again: {abbreviate(self.left)}"
        return f"copied {n:,} other file{'' if n == 1 else 's'}{left if self.left else ''}"
