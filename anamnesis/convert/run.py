"""remember: a model's weights at full precision, written whole or not at all."""

from __future__ import annotations

import errno
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from anamnesis.base.dropped import Dropped
from anamnesis.base.dtypes import DTYPES
from anamnesis.base.errors import AnamnesisError, OutputError, UnsupportedError
from anamnesis.base.stored import StoredTensor
from anamnesis.base.version import __version__
from anamnesis.checkpoint.metadata import left_behind
from anamnesis.checkpoint.open import Checkpoint
from anamnesis.convert.outputs import WRITER, DirectoryTarget, FileTarget, Target, single_plan
from anamnesis.convert.pipeline import count_overflows, run_plan
from anamnesis.convert.plan import OutputWeight, Plan
from anamnesis.convert.problems import first_of, unwritable_weights
from anamnesis.convert.request import Options
from anamnesis.convert.result import Report
from anamnesis.convert.sinks import StagingSink, StreamSink, Writable, write_all
from anamnesis.convert.staging import Staging
from anamnesis.formats.writers import promised_format
from anamnesis.schemes.base import Weight
from anamnesis.schemes.ledger import Claim
from anamnesis.schemes.plain import Plain, PlainEncoding, plain_dtype

__all__ = ["Remembering"]

_ONLY_TOLD_OF = "unreadable, without bytes to pass on"
_NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


class Remembering:
    """One conversion of one model.

    Raises
    ------
    UnsupportedError, ParseError
        If a stored tensor cannot be accounted for, or the file seems to be a part of a model, and
        the options do not let it pass.
    """

    def __init__(self, checkpoint: Checkpoint, claim: Claim, options: Options) -> None:
        self.checkpoint = checkpoint
        self.claim = claim
        self.options = options
        self.started = time.monotonic()
        unwritable = unwritable_weights(claim.weights.values(), WRITER)
        self.problems = {**claim.problems, **unwritable}
        if self.problems and not options.allow_unknown:
            raise first_of(self.problems)
        if checkpoint.lone_part is not None and not options.allow_unknown:
            raise UnsupportedError(
                checkpoint.lone_part,
                remedy="rename it if it is whole, or convert it alone with allow_unknown=True",
            )
        for name in claim.problems:
            if name in claim.weights:
                raise UnsupportedError(f"a weight and a tensor that is passed on are {name!r}")
        stored = [claim.stored[name] for name in self.problems]
        passed = [tensor for tensor in stored if not _is_only_told_of(tensor)]
        weights: list[Weight] = [
            *(w for name, w in claim.weights.items() if name not in unwritable),
            *map(_as_it_is, passed),
        ]
        self.passed = tuple(tensor.name for tensor in passed)
        self.left = [Dropped(t.name, _ONLY_TOLD_OF) for t in stored if _is_only_told_of(t)]
        self.weights = [
            OutputWeight(w, PlainEncoding(plain_dtype(w, options.dtype, cast=options.cast_all)))
            for w in weights
        ]

    def to_path(self, path: str) -> Report:
        """Write a file, or a directory if the model is one."""
        out = Path(os.path.abspath(path))
        is_file = self.checkpoint.root is None or (promised_format(path) and not out.is_dir())
        kind = FileTarget if is_file else DirectoryTarget
        target = kind(out, self.checkpoint, self.options, self.weights, dense=not self.problems)
        staging = Staging(out, sync=self.options.sync)
        identity = self._identity(target.plan)
        overflows: Counter[str] = Counter()
        if not self._finishing(staging, identity):
            if self.options.resume and target.is_finished():
                target.refuse_input()
                if staging.is_leftover(identity):
                    with staging:
                        staging.discard()
                return self._report(target.plan, str(out), overflows, target)
            target.check()
        overflows = self._write(target, staging, identity)
        return self._report(target.plan, str(out), overflows, target)

    def _finishing(self, staging: Staging, identity: dict[str, Any]) -> bool:
        """Tell whether the output is there in part because a killed run had begun to commit it."""
        return self.options.resume and staging.was_committing(identity)

    def _write(self, target: Target, staging: Staging, identity: dict[str, Any]) -> Counter[str]:
        with staging:
            try:
                if not self._finishing(staging, identity):
                    target.check()  # again, for another run may have finished meanwhile
                overflows = self._stage(target, staging, identity)
                target.commit(staging)
            except OSError as error:
                if error.errno in _NO_ROOM:
                    staging.discard()
                    if error.filename is None:  # of a call by descriptor
                        error.filename = str(target.out)
                raise
            except OutputError:
                staging.discard_new()
                raise
            except AnamnesisError:  # the source is broken: to resume would end here again
                staging.discard()
                raise
        return overflows

    def _stage(self, target: Target, staging: Staging, identity: dict[str, Any]) -> Counter[str]:
        """Write everything but the final names."""
        plan = target.plan
        lost = self._finishing(staging, identity) and not target.is_whole(staging)
        resume = self.options.resume and not lost
        done = staging.begin(identity, target.names(), resume=resume)
        if staging.committing:
            return count_overflows(plan, done)
        sizes = {f.name: f.n_bytes for f in plan.files}
        staging.reserve(sizes, target.sidecar_bytes(), done)
        target.add_sidecars(staging)  # what cannot be copied fails before the work
        for file in plan.files:
            staging.write(file.name, 0, file.header)
        options = self.options
        overflows = run_plan(
            plan,
            StagingSink(staging),
            threads=options.threads,
            level=options.level,
            progress=options.progress,
            done=done,
        )
        if any(done.flags):  # bands that an earlier run has read, maybe without seeing the end
            for made in self.weights:
                for part in made.weight.parts:
                    part.source.check()
        return overflows

    def _identity(self, plan: Plan) -> dict[str, Any]:
        """Return what a partial run must agree in to be resumed."""
        shards = self.checkpoint.shards
        if self.checkpoint.root is None:  # the same file by whatever path
            shards = {os.path.realpath(c.source.path or n): c for n, c in shards.items()}
        sources = [[n, *c.source.stamp()] for n, c in shards.items()]
        layout = {"version": __version__, "digest": plan.digest(), "bands": plan.count_jobs()}
        return {**layout, "sources": sources}

    def to_stream(self, stream: Writable) -> Report:
        """Write one file to a stream that need not seek."""
        plan = single_plan("stream", self.checkpoint, self.weights, dense=not self.problems)
        write_all(stream, plan.files[0].header)
        options = self.options
        overflows = run_plan(
            plan,
            StreamSink(stream),
            threads=options.threads,
            level=options.level,
            progress=options.progress,
        )
        return self._report(plan, None, overflows)

    def to_callback(self, callback: Callable[[str, Any], object]) -> Report:
        """Call a function with each weight's name and array."""
        from anamnesis.schemes.arrays import decode_counting

        plan = single_plan("callback", self.checkpoint, self.weights, dense=not self.problems)
        overflows: Counter[str] = Counter()
        written = 0
        for made in self.weights:
            array, n = decode_counting(
                made.weight, made.parts[0].dtype, None, self.options.threads, self.options.level
            )
            if n:
                overflows[made.name] = n
            callback(made.name, array)
            written += made.n_bytes
            if self.options.progress is not None:
                self.options.progress(written, plan.n_tensor_bytes)
        return self._report(plan, None, overflows)

    def _report(
        self,
        plan: Plan,
        path: str | None,
        overflows: Counter[str],
        target: Target | None = None,
    ) -> Report:
        quantised = [t for t in self.weights if not isinstance(t.weight, Plain)]
        return Report(
            path=path,
            dtype=self.options.dtype.name,
            n_in=len(self.claim.stored),
            n_out=plan.n_tensors,
            n_quantized=len(quantised),
            n_bytes=plan.n_bytes,
            n_consumed=sum(len(t.weight.parts) - 1 for t in quantised),
            dropped=(
                *self.claim.dropped,
                *self.left,
                *left_behind(self.checkpoint.shards.values()),
                *self.checkpoint.left_out,
                *(target.dropped if target else ()),
            ),
            unknown=self.passed,
            still_quantized=tuple(target.kept if target else ()),
            overflows=dict(overflows),
            seconds=time.monotonic() - self.started,
        )


def _is_only_told_of(tensor: StoredTensor) -> bool:
    """Tell whether a stored tensor that nobody can decode has no bytes of its own either.

    So it is with torch's sparse and quantised tensors, which are made of others.
    """
    return tensor.dtype.name not in DTYPES and not tensor.n_bytes


def _as_it_is(tensor: StoredTensor) -> Plain:
    """Return a stored tensor as a weight; as its bytes, if safetensors have no such dtype."""
    if tensor.dtype.name not in DTYPES:
        tensor = tensor._replace(dtype=DTYPES["U8"], shape=(tensor.n_bytes,))
    return Plain(tensor.name, tensor.shape, (tensor,))
