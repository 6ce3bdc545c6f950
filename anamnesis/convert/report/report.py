"""What a conversion did: the account that it ends with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sized
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from anamnesis.base.printable import numbered
from anamnesis.base.sizes import format_size
from anamnesis.base.stored import Dropped
from anamnesis.convert.report.losses import Losses, WeightLoss


@dataclass(frozen=True, slots=True)
class Measured:
    """What encodings take of some bands of a model, or of all.

    Attributes
    ----------
    losses : Losses
        Of the weights that the bands are of.
    n_bands, n_bands_in_all : int
        How many were measured, and of how many.
    """

    losses: Losses
    n_bands: int
    n_bands_in_all: int

    @property
    def total(self) -> WeightLoss:
        return self.losses.total

    @property
    def is_sample(self) -> bool:
        return self.n_bands < self.n_bands_in_all

    def to_dict(self) -> dict[str, Any]:
        return {"is_sample": self.is_sample, **self.losses.to_dict()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What becomes of a model's weights, in a plan as in a report.

    Attributes
    ----------
    unknown : tuple of str
        Tensors that could not be accounted for and pass through as they are.
    still_quantized : tuple of str
        Files of the output that go on describing the quantisation, because of these.
    plain : dict of str to str
        Weights that are left plain although an encoding is asked for, and why.
    repacked : dict of str to str
        Weights whose own codes are moved to another layout, and the encoding that has it.
    recast : tuple of str
        Those of them whose codes become others that stand for the same values.
    unchanged : tuple of str
        Those of them that are written as they are stored: the same bytes under the same names.
    inexact : tuple of str
        Those of them whose float32 may differ in its last bits; BF16 and F16 come out equal.
    taken_apart : dict of str to int
        Tensors that become several, such as stacks of experts, and into how many pieces.
    put_together : dict of str to int
        Tensors that are made of several, such as stacks of experts, and of how many pieces.
    made : tuple of str
        Tensors that are made of config.json, such as the factors of a rope.
    requantised : dict of str to str
        Weights that are encoded out of other codes, by what these are in words: the loss is
        against what they decode to.
    unmovable : dict of str to str
        Those of them whose codes are of the kind that is asked for, and why they are not moved.
    cast : dict of str to (str, str)
        Plain weights that are cast, and their dtypes before and after.
    kept : dict of str to str
        Weights that stay in the blocks that they are stored in, and what these are called.
    edited : tuple of str
        Weights that have other values than those that are stored.
    matched : dict of str to tuple of str
        For patterns of the source's names, in an output with names of its own: what they match.
    """

    unknown: tuple[str, ...] = ()
    still_quantized: tuple[str, ...] = ()
    plain: Mapping[str, str] = field(default_factory=dict)
    repacked: Mapping[str, str] = field(default_factory=dict)
    recast: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    inexact: tuple[str, ...] = ()
    taken_apart: Mapping[str, int] = field(default_factory=dict)
    put_together: Mapping[str, int] = field(default_factory=dict)
    made: tuple[str, ...] = ()
    requantised: Mapping[str, str] = field(default_factory=dict)
    unmovable: Mapping[str, str] = field(default_factory=dict)
    cast: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    kept: Mapping[str, str] = field(default_factory=dict)
    edited: tuple[str, ...] = ()
    matched: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def outcome(self) -> dict[str, Any]:
        """Return these fields alone, by name."""
        return {one.name: getattr(self, one.name) for one in fields(Outcome)}


@dataclass(frozen=True, slots=True, repr=False)
class Report(Outcome):
    """What a conversion did: what `Outcome` has, and this.

    Attributes
    ----------
    path : str or None
        The output, if it has a path; of a GGUF model in parts the first.
    dtype : str
        What quantised weights came out as, or would have if there were any; `dtypes` says what
        was written.
    n_in, n_out : int
        Stored tensors read, and tensors written.
    n_quantized : int
        Weights that were quantised in the source and are decoded; `n_decoded` is the same.
    n_bytes : int
        Size of the files written.
    n_consumed : int
        Stored tensors that went into others: the scales of weights, and what else they have.
    dropped : tuple of Dropped
        Tensors and files that the output leaves out, and why.
    n_files : int
        Files of tensors that were written: shards, or parts.
    overflows : dict of str to int
        For tensors with values beyond the range of `dtype`: how many became infinite.
    seconds : float
    format : str
        The container that was written: `safetensors`, `gguf`, …
    encoding : str or None
        What weights were asked to be written in; None if in `dtype`.
    n_encoded : int
        Weights that were written in an encoding, which were values or are decoded first.
    encodings : dict of str to int
        How many of them in each.
    loss : Losses or None
        What the encoding took; None where it was not measured, or nothing was to be done.
    dtypes : dict of str to int
        Tensors written, by what they are stored as; the most frequent first.
    warnings : tuple of str
        What to know of the programs that may load it, in sentences.
    consumed : dict of str to int
        What went into others, by what it is: scales, zero points, ….
    odd_scales : dict of str to (dict of str to int)
        For stored scales of which some are `nan`, `infinite` or `zero`: how many.
    """

    path: str | None
    dtype: str
    n_in: int
    n_out: int
    n_quantized: int
    n_bytes: int
    n_consumed: int
    dropped: tuple[Dropped, ...]
    n_files: int = 1
    overflows: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    format: str = "safetensors"
    encoding: str | None = None
    n_encoded: int = 0
    encodings: dict[str, int] = field(default_factory=dict)
    loss: Losses | None = None
    dtypes: dict[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    consumed: dict[str, int] = field(default_factory=dict)
    odd_scales: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def n_decoded(self) -> int:
        """Weights that were quantised in the source and are decoded."""
        return self.n_quantized

    @property
    def n_repacked(self) -> int:
        """Weights whose own codes were moved to another layout."""
        return len(self.repacked)

    def to_dict(self) -> dict[str, Any]:
        outcome = self.outcome()
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in outcome}
        return {
            **own,
            **outcome,
            "dropped": tuple(map(asdict, self.dropped)),
            "n_decoded": self.n_decoded,
            "n_repacked": self.n_repacked,
            "loss": self.loss.to_dict() if self.loss else None,
        }

    def __repr__(self) -> str:
        where = "" if self.path is None else f" {self.path!r},"
        warned = f", {numbered(len(self.warnings), 'warning')}" if self.warnings else ""
        return (
            f"<anamnesis.{type(self).__name__}:{where} {self.format}, {format_size(self.n_bytes)},"
            f" in {numbered(self.n_in, 'tensor')}, out {self.n_out:,}, dropped"
            f" {len(self.dropped):,}{warned}>"
        )

    def __str__(self) -> str:
        line = f"in {self.n_in:,} tensors, out {self.n_out:,}, dropped {len(self.dropped):,}"
        reasons = Counter(d.reason for d in self.dropped)
        if reasons:
            line += f" ({', '.join(f'{reason}: {n:,}' for reason, n in reasons.most_common())})"
        if self.n_consumed:
            line += f"; {self.n_consumed:,} scale{'' if self.n_consumed == 1 else 's'} applied"
        exact = f" ({len(self.inexact):,} in BF16 and F16 only)" if self.inexact else ""
        why = Counter(self.plain.values()).most_common()
        counts: dict[str, Sized] = {
            "edited": self.edited,
            f"repacked without loss{exact}": self.repacked,
            "re-quantised": self.requantised,
            "tensors taken apart": self.taken_apart,
            "tensors put together": self.put_together,
            "made of config.json": self.made,
            "cast": self.cast,
            "kept as stored": self.kept,
            f"left plain ({', '.join(f'{reason}: {n:,}' for reason, n in why)})": self.plain,
        }
        line += "".join([f"; {len(some):,} {what}" for what, some in counts.items() if some])
        if self.loss is not None:
            line += f"; {self.loss.total}"
        if self.unknown:
            line += f"; passed through unread: {', '.join(self.unknown)}"
        if self.still_quantized:
            line += f"; {', '.join(self.still_quantized)} still describing the quantisation"
        if self.overflows:
            n = sum(self.overflows.values())
            line += f"; {n:,} values overflowed {self.dtype} in {', '.join(self.overflows)}"
        line += "".join(f"; {warning}" for warning in self.warnings)
        return line


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class PartReport(Report):
    """What making a part did; `n_bytes` is its size, and `n_files` how many files all parts have.

    Attributes
    ----------
    part : str
        `2/4`.
    files, missing : tuple of str
        The files of this part; those of all parts that are not made yet.
    """

    part: str
    files: tuple[str, ...]
    missing: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        names = ("path", "part", "files", "missing", "n_files", "n_bytes", "seconds")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        made = f"{numbered(len(self.files), 'file')} ({format_size(self.n_bytes)})"
        if not self.files:
            made = "nothing, for there are fewer files than parts"
        n = f"{self.n_files - len(self.missing):,} of {numbered(self.n_files, 'file')}"
        return f"Part {self.part}: {made}; {n} made"
