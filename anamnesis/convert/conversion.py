"""A model's weights written otherwise: to a path, to a stream, or to a function."""

from __future__ import annotations

import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from anamnesis.base.errors import OutputError, UnsupportedError
from anamnesis.base.limits import UNLIMITED, ParseLimits, hold
from anamnesis.base.printable import abbreviate
from anamnesis.base.source import file_status
from anamnesis.checkpoint.open import Checkpoint
from anamnesis.convert.decide.decide import decide
from anamnesis.convert.decide.decided import Decided
from anamnesis.convert.decide.renames import seen_as_asked
from anamnesis.convert.plan.outputs import make_plan
from anamnesis.convert.plan.plan import Plan
from anamnesis.convert.report.losses import Losses
from anamnesis.convert.report.report import PartReport, Report
from anamnesis.convert.request.request import Request
from anamnesis.convert.request.share import share_of
from anamnesis.convert.resume.destination import Destination
from anamnesis.convert.resume.places import destination
from anamnesis.convert.resume.protocol import Run
from anamnesis.convert.write.one_file import write_file, write_stream
from anamnesis.convert.write.pipeline import make_surveys
from anamnesis.convert.write.sinks import Writable, copy_to
from anamnesis.convert.write.tally import Tally
from anamnesis.schemes.core.roles import role_beside
from anamnesis.schemes.detect.ledger import Ledger

_NO_NUMBERS = "values are too large, and come back as infinities or NaNs"
_ERASED = "what comes back is no nearer than zeros"


class Conversion:
    """One conversion of one model."""

    def __init__(self, checkpoint: Checkpoint, ledger: Ledger, request: Request) -> None:
        self.started = time.monotonic()
        self.checkpoint = checkpoint
        self.decided = decide(seen_as_asked(checkpoint, ledger, request))
        self.request = self.decided.request
        self.decided.check()

    def destination(self, path: str) -> Destination:
        """Return where the output goes, planned."""
        self.request.check_spread()
        return destination(path, self._plan(), self.checkpoint, self.request)

    def to_path(self, path: str, planning: Callable[[], Destination]) -> Report:
        """Write a file; or a directory, if it was one or is cut, and no file is named.

        `planning` returns the destination anew, in any process.
        """
        where, part = self.destination(path), self.request.part
        plan, told_path = where.plan, where.told_path()
        if part is None and self.request.executor is None and where.is_local:
            return self._report(plan, told_path, Run(where).perform())
        from anamnesis.convert.parts.parts import Parts, make_all  # only here: seldom asked for

        parts = Parts(where)
        if part is None or part == "commit":
            tally = make_all(parts, planning) if part is None else parts.commit()
            return self._report(plan, told_path, tally)
        share = share_of(part)
        mine = parts.make_share(share, self.request.how)
        plan.scales = plan.scales.only(frozenset())  # each is counted where it is read
        names = [file.name for file in plan.files]
        told = self._report(plan, told_path, Tally(plan))
        return PartReport(
            **{one.name: getattr(told, one.name) for one in fields(Report)}
            | {"n_bytes": sum([parts.sizes[i] for i in mine])},
            part=f"{share.number}/{share.of}",
            files=tuple([names[i] for i in mine]),
            missing=tuple([names[i] for i in parts.missing()]),
        )

    def to_stream(self, stream: Writable, limits: ParseLimits | None = None) -> Report:
        """Write one file to a stream that need not seek; under `limits` if it is in memory."""
        import tempfile

        request = self.request
        for size in ("part", "executor", "max_shard_size", "split_max_size"):
            if getattr(request, size) is not None:
                raise OutputError("a stream takes one file", remedy=f"leave {size}=... out")
        self._refuse_input(stream)
        plan = self._plan()
        hold(limits or UNLIMITED, [("the output", plan.n_tensor_bytes)])
        make_surveys(plan, {}, lambda *_: None, request.how)
        (file,) = plan.files
        if file.in_order and not request.verify:
            tally = write_stream(plan, stream, request.how)
            self.checkpoint.check_unchanged()
        else:  # its bytes do not come in order
            with tempfile.TemporaryFile() as room:
                room.truncate(plan.n_bytes)
                tally = write_file(plan, room, request, request.how)
                self.checkpoint.check_unchanged()
                copy_to(room, stream, request.how.check)
        return self._report(plan, None, tally)

    def _refuse_input(self, stream: Writable) -> None:
        """Refuse a stream that is open on a file that is read."""
        status = file_status(stream)
        if status is None or not stat.S_ISREG(status.st_mode):
            return
        for container in self.checkpoint.shards.values():
            own = container.source.base.status()
            if own is not None and os.path.samestat(own, status):
                raise OutputError(
                    f"the output stream is open on {container.source.name}, which is the input;"
                    " name another output"
                )

    def to_callback(self, callback: Callable[[str, Any], object], limits: ParseLimits) -> Report:
        """Call a function with each weight's name and array, each of which `limits` must allow."""
        from anamnesis.schemes.core.arrays import decode_counting

        plan = self._plan(is_written=False)
        weights = [made for file in plan.files for made in file.given]
        if not plan.is_plain:
            raise TypeError("a function is called with plain weights only; name a path or a stream")
        if self.request.part is not None or self.request.executor is not None:
            raise TypeError("a function is called in this process; leave part and executor out")
        for made in weights:
            hold(limits, [(f"tensor {made.name!r}", made.n_bytes)])
        how = self.request.how
        tally = Tally(plan)
        written = 0
        for made in weights:
            array, n = decode_counting(
                made.weight, made.parts[0].dtype, None, how.threads, how.level, how.cancel
            )
            if n:
                tally.overflows[made.name] = n
            callback(made.name, array)
            written += made.n_bytes
            how.tell(written, plan.n_tensor_bytes)
        self.checkpoint.check_unchanged()
        return self._report(plan, None, tally, is_written=False)

    def _plan(self, *, is_written: bool = True) -> Plan:
        made = make_plan(self.decided)
        strict = self.request.strict
        for verdict in () if strict is False else made.verdicts:
            if verdict.outcome == "wrong" and not self.request.force:
                raise UnsupportedError(str(verdict), remedy="force=True writes it even so")
            if verdict.outcome == "otherwise" and strict:
                raise UnsupportedError(str(verdict))
        if is_written and self.request.expect_same is not None:
            from anamnesis.convert.write.same import check_same

            check_same(made, self.request)
        return made

    def _report(
        self, plan: Plan, path: str | None, tally: Tally, *, is_written: bool = True
    ) -> Report:
        losses, odd_scales, pieces = tally.losses, plan.scales.counts(), self.decided.pieces
        source = [weight for piece in pieces for weight in piece.weight.made_of]
        quantised = [weight for weight in source if weight.own_dtype is None]
        beside = {  # by its name, for pieces of a stack may share a part
            part.name: role_beside(part) for weight in quantised for part in weight.parts[1:]
        }
        encoded = [piece.encoding.id for piece in pieces if not piece.is_plain]
        dtypes = (part.dtype.name for file in plan.files for w in file.given for part in w.parts)
        return Report(
            **plan.account.outcome(),
            path=path,
            dtype=self.request.dtype.name,
            n_in=plan.account.n_in,
            n_out=plan.n_tensors,
            n_quantized=len(quantised),
            n_bytes=plan.n_bytes,
            n_files=len(plan.files),
            consumed=dict(Counter(beside.values()).most_common()),
            n_consumed=len(beside),
            dropped=plan.account.dropped,
            overflows=dict(tally.overflows),
            odd_scales=odd_scales,
            seconds=time.monotonic() - self.started,
            format=plan.files[0].writer.id if plan.files else "safetensors",
            encoding=self.request.encoding.id if self.request.encoding else None,
            n_encoded=len(encoded),
            encodings=dict(Counter(encoded).most_common()),
            loss=losses,
            dtypes=dict(Counter(dtypes).most_common()),
            warnings=(
                *filter(None, [self.checkpoint.below]),
                *self.decided.seen.checkpoint.notes,
                *_warnings(self.decided, losses, odd_scales),
                *(plan.warnings if is_written else ()),
            ),
        )


def _warnings(
    decided: Decided, losses: Losses | None, odd_scales: Mapping[str, Mapping[str, int]]
) -> Iterator[str]:
    """Yield which weights are of other types than was asked for, are spoilt, or have odd scales."""
    by_reason: dict[str, list[str]] = {}
    for name, typed in decided.mix.types.items() if decided.mix is not None else ():
        if typed.misfit is not None:
            by_reason.setdefault(typed.misfit, []).append(name)
    for why, names in by_reason.items():
        yield f"{why}: {abbreviate(names)}"
    spoilt = {} if losses is None else {_NO_NUMBERS: losses.not_finite, _ERASED: losses.erased}
    for why, names in spoilt.items():
        more = f" and {len(names) - 1:,} more weights" if len(names) > 1 else ""
        if names:
            yield f"{names[0]!r}{more}: {why}; exclude such weights, so that they stay as they are"
    kinds: Counter[str] = Counter()
    for counts in odd_scales.values():
        kinds.update(counts)
    if kinds:
        told = ", ".join(f"{n:,} {'NaN' if kind == 'nan' else kind}" for kind, n in kinds.items())
        yield f"scales without a usual value: {told}, in {abbreviate(odd_scales)}"
