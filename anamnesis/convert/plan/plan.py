"""What a conversion will write, known to the byte before any tensor data is read.

A plan is a pure value: making one opens nothing and reads nothing.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

from anamnesis.base.printable import numbered
from anamnesis.base.sizes import format_size
from anamnesis.checkpoint.file_names import PARAMS_NAME
from anamnesis.convert.decide.decided import Account, Decided
from anamnesis.convert.plan.files import DirectoryOutput, Job, OutputFile, OutputWeight
from anamnesis.convert.report.report import Measured
from anamnesis.schemes.core.bands import THREAD_BYTES, band_bytes, encoded_band_bytes
from anamnesis.schemes.core.odd_scales import OddScales
from anamnesis.schemes.core.plain import Edited

if TYPE_CHECKING:
    from anamnesis.convert.loaders.verdicts import Verdict

_MOST = 4  # encodings in a repr


class Plan:
    """All files of an output, and the bands in which they are made, in order.

    Attributes
    ----------
    files : list of OutputFile
    account : Account
    directory : DirectoryOutput or None
        None if the output is one file.
    threads : int
    is_plain : bool
        Whether all weights are written as values, or as they are stored.
    measures : bool
        Whether what encodings take is measured.
    math : str
        `float32`, or `reference`: what is decoded by.
    config : mapping
        The source's config.json; empty where it has none.
    n_bytes, n_tensor_bytes, n_tensors : int
        Of the files; of the tensors in them; how many these are.
    measured : Measured or None
        What the encodings take, if that was measured.
    why : mapping of str to str
        Of a mix of GGUF's types, by weight what it is that says its type.
    names : mapping of str to tuple of str
        Of weights that are called otherwise than in the source, what they are made of.
    otherwise : tuple of str
        What llama.cpp computes otherwise than the model's own class.
    """

    def __init__(
        self,
        files: list[OutputFile],
        decided: Decided,
        account: Account,
        directory: DirectoryOutput | None = None,
    ) -> None:
        seen, request, mix = decided.seen, decided.request, decided.mix
        self.files, self.account, self.directory = files, account, directory
        self.threads, self.math = request.threads, request.math
        self.config, self.names, self.otherwise = seen.checkpoint.config, seen.names, seen.otherwise
        self.why = {} if mix is None else {name: typed.why for name, typed in mix.types.items()}
        weights = list(self.weights())
        for i, weight in enumerate(weights):
            weight.index = i
        self.is_plain = all([weight.is_plain for weight in weights])  # noqa: C419 -- faster
        self.measures = request.measure and not self.is_plain
        self.measured: Measured | None = None
        self.reshaped = [
            f"{one.name!r} is edited to {list(one.shape)}, and was {list(one.was.shape)}"
            for one in seen.ledger.weights.values()
            if isinstance(one, Edited) and one.shape != one.was.shape
        ]
        self.scales = OddScales(seen.ledger.weights.values())
        self.n_tensors = sum([len(weight.parts) for weight in weights])
        self._add_up()

    def _add_up(self) -> None:
        self.n_bytes = sum([file.n_bytes for file in self.files])
        self.n_tensor_bytes = sum([weight.n_bytes for weight in self.weights()])

    def settle(self, found: Mapping[int, bytes]) -> None:
        """Take what the surveys of weights have found, by their index, and lay out anew."""
        weights = {weight.index: weight for weight in self.weights()}
        for index, raw in self.joint(found).items():
            weights[index].settle(raw)
        for file in self.files:
            if any(made.index in found for made in file.given):
                file.lay_out()
        self._add_up()

    def joint(self, found: Mapping[int, bytes]) -> dict[int, bytes]:
        """Return what was found; of weights that depend on each other, what was of them all."""
        if not found:
            return {}
        settled = dict(found)
        for joined in self._together(made for made in self.weights() if made.index in found):
            raw = joined[0].encoding.encoder.joint([found[made.index] for made in joined])
            settled.update({made.index: raw for made in joined})
        return settled

    def _together(self, surveyed: Iterable[OutputWeight]) -> Iterator[list[OutputWeight]]:
        by_encoding: dict[str, dict[str, OutputWeight]] = {}
        for made in surveyed:
            by_encoding.setdefault(made.encoding.id, {})[made.weight.name] = made
        names = [made.weight.name for made in self.weights()] if by_encoding else []
        for of_one in by_encoding.values():
            for group in next(iter(of_one.values())).encoding.layout.together(names):
                joined = [of_one[name] for name in group if name in of_one]
                if len(joined) > 1:
                    yield joined

    def only(self, file: OutputFile) -> Plan:
        """Return the plan of one file alone, whose weights keep their numbers."""
        made = copy(self)
        made.files, made.directory = [file], None
        read = {part.name for weight in file.weights for part in weight.weight.parts}
        made.scales = self.scales.only(read)
        made._add_up()
        return made

    def surveyed_for(self, file: OutputFile) -> list[OutputWeight]:
        """Return which weights are passed over before one file is written: others', too."""
        some = [made for own in file.weights for made in self._surveyed_with.get(own.index, ())]
        return list({made.index: made for made in some}.values())

    @cached_property
    def _surveyed_with(self) -> dict[int, list[OutputWeight]]:
        surveyed = self.to_survey
        found = {made.index: [made] for made in surveyed}
        for joined in self._together(surveyed):
            found.update({made.index: joined for made in joined})
        return found

    @property
    def to_survey(self) -> list[OutputWeight]:
        """Weights that are passed over before they are written, in order."""
        coded = [] if self.is_plain else [made for made in self.weights() if not made.is_plain]
        return [w for w in coded if w.encoding.encoder.survey(w.weight.shape) is not None]

    @property
    def encodings(self) -> Counter[str]:
        """How many weights are written in each encoding, repacked ones among them."""
        made = [w.encoding.id for w in self.weights() if not w.is_moved]
        return Counter([*made, *self.account.repacked.values()])

    @property
    def sums(self) -> int:
        """How many CRC-32 are wanted of each band."""
        summed = (file.weights for file in self.files if file.writer.wants_sums)
        return max((len(made.parts) for weights in summed for made in weights), default=0)

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """What the programs make of it that know its encodings, as far as that was tried."""
        from anamnesis.convert.loaders.verdicts import Output, facts_of_output, otherwise, verdicts

        if self.account.unknown or self.account.still_quantized:  # of which nobody knows
            return otherwise((), self.otherwise)
        weights = list(self.weights())
        encoded = {made.name: made.encoding.id for made in weights if not made.is_plain}
        output = Output(
            container=self.files[0].writer.id if self.files else "safetensors",
            metadata=self.files[0].metadata if self.files else {},
            config=self.config,
            has_config=self.directory is not None and self.directory.config is not None,
            has_params=self.directory is not None and PARAMS_NAME in self.directory.sidecars,
            names=[made.name for made in weights],
            coded={**encoded, **self.account.repacked},
            dtypes={part.dtype.name for made in weights for part in made.parts},
            numbers={part.name for made in weights for part in made.parts if not part.shape},
        )
        return otherwise(verdicts(facts_of_output(output)), self.otherwise)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user must know of who loads it, and of what quantises it, in sentences."""
        from anamnesis.convert.loaders.verdicts import warnings

        told = [*self.reshaped, *warnings(self.verdicts)]
        coded = [made for made in self.weights() if not made.is_plain]
        given = {made.name: getattr(made.encoding.encoder, "importance", None) for made in coded}
        used = {name: one for name, one in given.items() if one}
        unmeasured = {name: one.n_unmeasured for name, one in used.items() if one.n_unmeasured}
        if unmeasured:
            told.append(
                f"the importance matrix says nothing of {sum(unmeasured.values()):,} of the"
                f" matrices, such as in {next(iter(unmeasured))!r}: their columns count alike"
            )
        zeros = {name: one.n_zeros for name, one in used.items() if one.n_zeros}
        if zeros:
            told.append(
                f"{sum(zeros.values()):,} of the columns, such as in {next(iter(zeros))!r}, have"
                " importance 0: where a whole block has, its values become 0"
            )
        return tuple(told)

    @property
    def ratio(self) -> float | None:
        """Bytes of tensors that are written, for each of the source's; None if it has none."""
        n_bytes_in = self.account.n_bytes_in
        return self.n_tensor_bytes / n_bytes_in if n_bytes_in else None

    @property
    def bits_per_weight(self) -> float | None:
        """What each value takes on average, scales and all; None if there are none."""
        n = self.account.n_parameters
        return 8 * self.n_tensor_bytes / n if n else None

    @property
    def peak_memory(self) -> int:
        """The most bytes that a run takes over the interpreter's own.

        What else functions take that edit weights is not among them.
        """
        headers = sum(len(raw) for file in self.files for _, raw in file.fixed)
        return self.threads * THREAD_BYTES + headers + self.account.n_bytes_edited

    def __repr__(self) -> str:
        what = ", ".join(f"{n:,} {encoding}" for encoding, n in self.encodings.most_common(_MOST))
        where = self.files[0].writer.id if self.files else "nothing"
        n_problems = len(self.account.problems)
        found = f"; {numbered(n_problems, 'problem')}" if n_problems else ""
        return (
            f"<anamnesis.Plan of {numbered(self.n_tensors, 'tensor')} ({what}) in {where},"
            f" {numbered(len(self.files), 'file')}, {format_size(self.n_bytes)}{found}>"
        )

    def to_dict(self) -> dict[str, Any]:
        account, directory = self.account, self.directory
        outcome = {k: list(v) if type(v) is tuple else v for k, v in account.outcome().items()}
        return {
            "files": [file.to_dict() for file in self.files],
            "copied": directory.sidecars if directory else [],
            "config": directory.config_edits if directory else {},
            "n_in": account.n_in,
            "n_out": self.n_tensors,
            "n_bytes": self.n_bytes,
            "n_bytes_in": account.n_bytes_in,
            "ratio": self.ratio,
            "bits_per_weight": self.bits_per_weight,
            "loss": self.measured.to_dict() if self.measured else None,
            "peak_memory": self.peak_memory,
            "math": self.math,
            "encodings": dict(self.encodings),
            "why": dict(self.why),
            "names": {name: list(names) for name, names in self.names.items()},
            "problems": {name: str(error) for name, error in account.problems.items()},
            "dropped": [asdict(one) for one in account.dropped],
            **outcome,
            "loads": [verdict.to_dict() for verdict in self.verdicts],
            "warnings": list(self.warnings),
        }

    def weights(self) -> Iterator[OutputWeight]:
        for file in self.files:
            yield from file.weights

    def jobs(self) -> Iterator[Job]:
        """Yield all bands, file after file, in the order of their bytes."""
        return (job for run in self.runs() for job in run)

    def runs(self) -> Iterator[list[Job]]:
        """Yield all bands, in runs that one thread had better do."""
        ordinal = 0
        for file in self.files:
            for weight in file.weights:
                for bands in weight.bands().runs():
                    yield [weight.job(i, file, band) for i, band in enumerate(bands, ordinal)]
                    ordinal += len(bands)

    def digest(self) -> str:
        """Return a hash of all that the output depends on, but for the sources' bytes."""
        state = hashlib.sha256(f"{band_bytes()} {encoded_band_bytes()} {self.math}".encode())
        for file in self.files:
            state.update(file.name.encode("utf-8", "surrogatepass") + b"\0")
            for offset, raw in file.fixed:
                state.update(offset.to_bytes(8, "little") + raw)
            for made in file.weights:
                parts = [
                    (p.name, p.dtype.name, p.offset, *([p.source.way] if p.source.way else []))
                    for p in made.weight.parts
                ]
                codes = made.encoding.codes
                given = (codes.given,) if codes is not None and codes.given else ()
                encoding = (made.encoding.id, made.encoding.values.name, *given)
                state.update(repr((made.weight.id, encoding, parts)).encode())
        return state.hexdigest()
