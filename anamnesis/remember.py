"""remember: a model's weights at full precision, written whole or not at all."""

from __future__ import annotations

import errno
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from anamnesis.checkpoint import CONFIG_NAME, INDEX_NAME, QUANT_FILES, Checkpoint, read_json
from anamnesis.dtypes import DType
from anamnesis.errors import AnamnesisError, OutputError
from anamnesis.hf_config import PARAMS_NAME, dense_config, dense_params, shard_index
from anamnesis.limits import Budget
from anamnesis.pipeline import Progress, StagingSink, StreamSink, Writable, decode_plan
from anamnesis.plan import OutputFile, OutputTensor, Plan, split_by_size
from anamnesis.schemes.claim import Claim, Dropped
from anamnesis.schemes.config import COMFY_METADATA_KEY
from anamnesis.schemes.weight import Plain, Weight
from anamnesis.sizes import format_size
from anamnesis.staging import Done, Staging
from anamnesis.version import __version__

__all__ = ["Options", "Remembering", "Report"]

_NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of `Model.remember`, resolved."""

    dtype: DType
    threads: int
    level: int
    progress: Progress | None = None
    force: bool = False
    resume: bool = False
    sync: bool = False
    cast_all: bool = False
    allow_unknown: bool = False
    max_shard_size: int | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What a conversion did.

    Attributes
    ----------
    path : str or None
        The output, if it has a path.
    dtype : str
        What quantised weights came out as.
    n_in, n_out, n_quantized : int
        Stored tensors read, tensors written, and how many of these were quantised.
    n_bytes : int
        Size of the safetensors files written.
    dropped : tuple of Dropped
        Tensors and files that the output leaves out, and why.
    unknown : tuple of str
        Tensors that could not be accounted for and passed through as they are.
    overflows : dict of str to int
        For tensors with values beyond the range of `dtype`: how many became infinite.
    seconds : float
    """

    path: str | None
    dtype: str
    n_in: int
    n_out: int
    n_quantized: int
    n_bytes: int
    dropped: tuple[Dropped, ...]
    unknown: tuple[str, ...] = ()
    overflows: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values that `json.dumps` takes."""
        return asdict(self)

    def __str__(self) -> str:
        line = f"in {self.n_in:,} tensors, out {self.n_out:,}, dropped {len(self.dropped):,}"
        reasons = Counter(d.reason for d in self.dropped)
        if reasons:
            line += f" ({', '.join(f'{n:,} {reason}' for reason, n in reasons.most_common())})"
        if self.unknown:
            line += f"; passed through unread: {', '.join(self.unknown)}"
        if self.overflows:
            n = sum(self.overflows.values())
            line += f"; {n:,} values overflowed {self.dtype} in {', '.join(self.overflows)}"
        return line


class Remembering:
    """One conversion of one model."""

    def __init__(self, checkpoint: Checkpoint, claim: Claim, options: Options) -> None:
        self.checkpoint = checkpoint
        self.claim = claim
        self.options = options
        self.started = time.monotonic()
        if claim.problems and not options.allow_unknown:
            raise next(iter(claim.problems.values()))
        unread = (claim.stored[name] for name in claim.problems)
        self.weights: list[Weight] = [
            *claim.weights.values(),
            *(Plain(t.name, t.shape, (t,)) for t in unread),
        ]
        self.dropped = [*claim.dropped, *checkpoint.left_out]

    # --- where to ------------------------------------------------------------------------------

    def to_path(self, out: Path) -> Report:
        """Write a file, or a directory if the model is one."""
        out = Path(os.path.abspath(out))
        target = _DirectoryTarget(self, out) if self.checkpoint.root else _FileTarget(self, out)
        plan = target.plan()
        if target.is_finished(plan):
            return self.report(plan, str(out), Counter())
        target.check()
        with Staging(out, sync=self.options.sync) as staging:
            try:
                target.check()  # again, for another run may have finished meanwhile
                done = staging.begin(self.identity(plan), resume=self.options.resume)
                overflows = Counter[str]()
                if not staging.committing:
                    overflows = self.write(plan, staging, done, target)
                target.commit(staging, plan)
            except OSError as error:
                if error.errno in _NO_ROOM:
                    staging.discard()
                raise
            except AnamnesisError:
                staging.discard_new()
                raise
        return self.report(plan, str(out), overflows)

    def write(self, plan: Plan, staging: Staging, done: Done, target: _Target) -> Counter[str]:
        """Write everything but the final names."""
        staging.reserve({file.name: file.n_bytes for file in plan.files}, target.extra_bytes())
        for file in plan.files:
            staging.write(file.name, 0, file.header)
        overflows = self.decode(plan, StagingSink(staging), done)
        target.add_sidecars(staging, plan)
        return overflows

    def to_stream(self, stream: Writable) -> Report:
        """Write one file to a stream that need not seek."""
        plan = self.single_plan("stream")
        stream.write(plan.files[0].header)
        overflows = self.decode(plan, StreamSink(stream), None)
        return self.report(plan, None, overflows)

    def to_callback(self, callback: Callable[[str, Any], object]) -> Report:
        """Call a function with each weight's name and array."""
        import numpy as np

        from anamnesis.schemes.memory import decode_into

        plan = self.single_plan("callback")
        overflows: Counter[str] = Counter()
        written = 0
        for weight in self.weights:
            tensor = self.output(weight)
            array = np.empty(tensor.shape, tensor.dtype.numpy())
            buffer = np.empty(tensor.n_bytes, np.uint8)
            n = decode_into(
                weight, tensor.dtype, memoryview(buffer), self.options.threads, self.options.level
            )
            if n:
                overflows[weight.name] = n
            array = buffer if tensor.dtype.bits < 8 else buffer.view(array.dtype).reshape(array.shape)
            callback(weight.name, array)
            written += tensor.n_bytes
            if self.options.progress is not None:
                self.options.progress(written, plan.n_bytes)
        return self.report(plan, None, overflows)

    # --- what ----------------------------------------------------------------------------------

    def output(self, weight: Weight) -> OutputTensor:
        """Return a weight with the dtype that it is written in."""
        return OutputTensor(weight, weight.target(self.options.dtype, self.options.cast_all))

    def metadata(self, *sources: dict[str, str]) -> dict[str, str]:
        """Merge `__metadata__`, without what described the quantisation."""
        merged = {key: value for source in sources for key, value in source.items()}
        merged.pop(COMFY_METADATA_KEY, None)
        return merged

    def single_plan(self, name: str) -> Plan:
        """Plan one file of all weights."""
        metadata = (c.metadata for c in self.checkpoint.shards.values())
        tensors = (self.output(w) for w in self.weights)
        return Plan([OutputFile(name, tensors, self.metadata(*metadata))])

    def identity(self, plan: Plan) -> dict[str, Any]:
        """Return what a partial run must agree in to be resumed."""
        sources = [[n, *c.source.stamp()] for n, c in self.checkpoint.shards.items()]
        layout = {"version": __version__, "digest": plan.digest(), "bands": plan.count_jobs()}
        return {**layout, "sources": sources}

    def decode(
        self, plan: Plan, sink: StagingSink | StreamSink, done: Done | None
    ) -> Counter[str]:
        """Run the pipeline."""
        options = self.options
        return decode_plan(
            plan,
            sink,
            threads=options.threads,
            level=options.level,
            progress=options.progress,
            done=done,
        )

    def report(self, plan: Plan, path: str | None, overflows: Counter[str]) -> Report:
        """Sum up."""
        return Report(
            path=path,
            dtype=self.options.dtype.name,
            n_in=len(self.claim.stored),
            n_out=plan.n_tensors,
            n_quantized=sum(not isinstance(w, Plain) for w in self.weights),
            n_bytes=plan.n_bytes,
            dropped=tuple(self.dropped),
            unknown=tuple(self.claim.problems),
            overflows=dict(overflows),
            seconds=time.monotonic() - self.started,
        )


class _Target:
    """Where an output goes; the two kinds differ in names, checks and sidecars."""

    def __init__(self, remembering: Remembering, out: Path) -> None:
        self.remembering = remembering
        self.options = remembering.options
        self.checkpoint = remembering.checkpoint
        self.out = out

    def plan(self) -> Plan:
        raise NotImplementedError

    def check(self) -> None:
        """Refuse an output that is the input or exists."""
        raise NotImplementedError

    def final_name(self, file: OutputFile) -> Path:
        raise NotImplementedError

    def is_finished(self, plan: Plan) -> bool:
        """Tell whether a run to be resumed has in fact finished: all files are there, as planned."""
        return self.options.resume and all(
            _starts_with(self.final_name(file), file.header, file.n_bytes) for file in plan.files
        )

    def extra_bytes(self) -> int:
        return 0

    def add_sidecars(self, staging: Staging, plan: Plan) -> None:
        pass

    def commit(self, staging: Staging, plan: Plan) -> None:
        raise NotImplementedError


class _FileTarget(_Target):
    """One file."""

    def plan(self) -> Plan:
        return self.remembering.single_plan(self.out.name)

    def final_name(self, file: OutputFile) -> Path:
        return self.out

    def check(self) -> None:
        (container,) = self.checkpoint.shards.values()
        if self.out.is_dir():
            raise OutputError(f"{self.out}: is a directory; name a file")
        if not self.out.exists():
            return
        source = container.source.path
        if source is not None and os.path.samefile(self.out, source):
            raise OutputError(f"{self.out}: is the input; name another output")
        if not self.options.force:
            raise OutputError(f"{self.out}: exists; --force replaces it")

    def commit(self, staging: Staging, plan: Plan) -> None:
        staging.commit_file(self.out.name)


class _DirectoryTarget(_Target):
    """A directory that `transformers` loads as it stands."""

    def plan(self) -> Plan:
        shards = self.shards()
        return Plan([OutputFile(name, *shard) for name, shard in shards.items()])

    def shards(self) -> dict[str, tuple[list[OutputTensor], dict[str, str]]]:
        """Return tensors and metadata of each shard: as the source has them, or cut anew."""
        all_metadata = [c.metadata for c in self.checkpoint.shards.values()]
        weights = self.remembering.weights
        if self.options.max_shard_size is not None:
            outputs = [self.remembering.output(w) for w in weights]
            pieces = split_by_size(outputs, self.options.max_shard_size)
            metadata = self.metadata(*all_metadata)
            return {
                _shard_name(i, len(pieces)): (piece, metadata) for i, piece in enumerate(pieces, 1)
            }
        by_source: dict[int, list[OutputTensor]] = {}
        for weight in weights:
            home = id(weight.parts[0].source)
            by_source.setdefault(home, []).append(self.remembering.output(weight))
        return {
            name: (by_source[id(c.source)], self.metadata(c.metadata))
            for name, c in self.checkpoint.shards.items()
            if id(c.source) in by_source
        }

    def metadata(self, *sources: dict[str, str]) -> dict[str, str]:
        """Merge; transformers refuses a shard that does not say its format."""
        return {"format": "pt", **self.remembering.metadata(*sources)}

    def final_name(self, file: OutputFile) -> Path:
        return self.out / file.name

    def is_finished(self, plan: Plan) -> bool:
        has_config = not self.checkpoint.config or (self.out / CONFIG_NAME).exists()
        return super().is_finished(plan) and has_config

    def check(self) -> None:
        root = self.checkpoint.root
        assert root is not None  # noqa: S101 -- that is what makes it a directory
        if self.out.suffix == ".safetensors" or self.out.is_file():
            raise OutputError(f"{self.out}: a directory of shards becomes a directory; name one")
        if not self.out.exists():
            return
        if os.path.samefile(self.out, root):
            raise OutputError(f"{self.out}: is the input; name another output")
        present = {p.name for p in self.out.iterdir() if not p.name.startswith(".")}
        if present and not self.options.force:
            raise OutputError(f"{self.out}: exists and is not empty; --force replaces its files")
        planned = set(self.shards())
        others = sorted(n for n in present if n.endswith(".safetensors") and n not in planned)
        if others:
            raise OutputError(
                f"{self.out}: holds other weights ({others[0]}), which would mix with these; name"
                " another output"
            )

    def sidecars(self) -> Iterable[str]:
        return (name for name in self.checkpoint.sidecars if name not in QUANT_FILES)

    def extra_bytes(self) -> int:
        assert self.checkpoint.root is not None  # noqa: S101
        return sum((self.checkpoint.root / name).stat().st_size for name in self.sidecars())

    def add_sidecars(self, staging: Staging, plan: Plan) -> None:
        root = self.checkpoint.root
        assert root is not None  # noqa: S101
        for name in self.sidecars():
            if name == PARAMS_NAME:
                staging.add(name, dense_params(read_json(root / name, Budget())))
            else:
                staging.copy(root / name, name)
        if len(plan.files) > 1 or (root / INDEX_NAME).is_file():
            weight_map = {t.name: file.name for file in plan.files for t in file.tensors}
            total_size = sum(t.n_bytes for file in plan.files for t in file.tensors)
            staging.add(INDEX_NAME, shard_index(weight_map, total_size))
        if self.checkpoint.config:
            staging.add(CONFIG_NAME, dense_config(self.checkpoint.config, self.config_dtype()))

    def config_dtype(self) -> DType | None:
        """Return the dtype that the config must name, None where it stays what it was."""
        quantised = any(not isinstance(w, Plain) for w in self.remembering.weights)
        return self.options.dtype if quantised or self.options.cast_all else None

    def commit(self, staging: Staging, plan: Plan) -> None:
        staging.commit_directory(last=CONFIG_NAME)
        dropped = (name for name in self.checkpoint.sidecars if name in QUANT_FILES)
        self.remembering.dropped += [Dropped(n, "describes the quantisation") for n in dropped]


def _shard_name(i: int, n: int) -> str:
    return f"model-{i:05d}-of-{n:05d}.safetensors" if n > 1 else "model.safetensors"


def _starts_with(path: Path, header: bytes, size: int) -> bool:
    try:
        with open(path, "rb") as file:
            return os.fstat(file.fileno()).st_size == size and file.read(len(header)) == header
    except OSError:
        return False
