"""A model's weights written otherwise: to a path, to a stream, or to a function."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from anamnesis.checkpoint.file_names import EXTENSION
from anamnesis.checkpoint.open import Checkpoint
from anamnesis.convert.choice import Choice
from anamnesis.convert.destination import destination
from anamnesis.convert.outputs import WRITER, make_plan
from anamnesis.convert.pipeline import run_plan
from anamnesis.convert.plan import Plan
from anamnesis.convert.request import Request
from anamnesis.convert.result import Report
from anamnesis.convert.run import Run
from anamnesis.convert.sinks import StreamSink, Writable, write_all
from anamnesis.schemes.ledger import Claim
from anamnesis.schemes.plain import Plain

__all__ = ["Conversion"]


class Conversion:
    """One conversion of one model.

    Raises
    ------
    UnsupportedError, ParseError
        If a stored tensor cannot be accounted for, or the file seems to be a part of a model, and
        the request does not let it pass.
    """

    def __init__(self, checkpoint: Checkpoint, claim: Claim, request: Request) -> None:
        self.started = time.monotonic()
        self.checkpoint = checkpoint
        self.request = request
        self.choice = Choice(checkpoint, claim, request, WRITER)
        self.choice.check()

    def to_path(self, path: str) -> Report:
        """Write a file; or a directory, if the model is one and no file is named."""
        out = Path(os.path.abspath(path))
        is_file = self.checkpoint.root is None or _names_a_file(out)
        plan = self._plan(out.name if is_file else None)
        run = Run(destination(out, plan, self.checkpoint, self.request))
        return self._report(plan, str(out), run.perform())

    def to_stream(self, stream: Writable) -> Report:
        """Write one file to a stream that need not seek."""
        plan = self._plan("")
        write_all(stream, plan.files[0].fixed[0][1])
        overflows = run_plan(
            plan,
            StreamSink(stream),
            threads=self.request.threads,
            level=self.request.level,
            progress=self.request.progress,
        )
        return self._report(plan, None, overflows)

    def to_callback(self, callback: Callable[[str, Any], object]) -> Report:
        """Call a function with each weight's name and array."""
        from anamnesis.schemes.arrays import decode_counting

        plan = self._plan("")
        request = self.request
        overflows: Counter[str] = Counter()
        written = 0
        for made in self.choice.weights:
            array, n = decode_counting(
                made.weight, made.parts[0].dtype, None, request.threads, request.level
            )
            if n:
                overflows[made.name] = n
            callback(made.name, array)
            written += made.n_bytes
            if request.progress is not None:
                request.progress(written, plan.n_tensor_bytes)
        return self._report(plan, None, overflows)

    def _plan(self, name: str | None) -> Plan:
        return make_plan(self.checkpoint, self.choice, self.request, name=name)

    def _report(self, plan: Plan, path: str | None, overflows: Counter[str]) -> Report:
        account = plan.account
        quantised = [t for t in self.choice.weights if not isinstance(t.weight, Plain)]
        return Report(
            path=path,
            dtype=self.request.dtype.name,
            n_in=account.n_in,
            n_out=plan.n_tensors,
            n_quantized=len(quantised),
            n_bytes=plan.n_bytes,
            n_consumed=sum(len(t.weight.parts) - 1 for t in quantised),
            dropped=tuple(account.dropped),
            unknown=account.passed,
            still_quantized=tuple(account.still_quantized),
            overflows=dict(overflows),
            seconds=time.monotonic() - self.started,
        )


def _names_a_file(out: Path) -> bool:
    """Tell whether a path, by its extension, is that of one file."""
    return out.suffix == EXTENSION and not out.is_dir()
