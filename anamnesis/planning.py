"""The verbs of a model that write nothing: `plan` and `fit`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Unpack, cast

from anamnesis.base.arguments import Size, Word, checked, whole_number
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.limits import ParseLimits
from anamnesis.checkpoint.open import Checkpoint
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.tensor import Tensor

if TYPE_CHECKING:
    from anamnesis.convert.fit.fit import Fit
    from anamnesis.convert.plan.plan import Plan
    from anamnesis.convert.request.request import ConvertOptions, Request
    from anamnesis.convert.request.spellings import Named
    from anamnesis.convert.request.targets import Target

__all__ = ["Planning"]


class Planning:
    """What a model would become; `convert` has the work."""

    _checkpoint: Checkpoint
    _ledger: Ledger
    _limits: ParseLimits

    _check_open: Callable[[], None]
    _tensor: Callable[[Weight], Tensor]

    def _edited(self, asked: Request, opened: ExitStack) -> tuple[Checkpoint, Ledger, Request]:
        """Return the model with what is edited of its weights and what adapters add, and how.

        The adapters' files are closed with `opened`. A GGUF that becomes a directory has
        transformers' names from then on.
        """
        checkpoint, ledger = self._checkpoint, self._ledger
        if asked.edit:
            from anamnesis.convert.plan.edits import edited  # only here, as most models stay as is

            ledger = edited(ledger, asked, self._limits, self._tensor)
        if asked.lora:
            from anamnesis.convert.decide import renames
            from anamnesis.convert.lora.merge import merged, merged_as_stored

            if renames.becomes_directory(checkpoint, asked):
                checkpoint, ledger, *_ = renames.as_directory(checkpoint, ledger, asked)
            elif renames.is_gguf_of_llama_cpp(checkpoint):
                return checkpoint, *merged_as_stored(checkpoint, ledger, asked, opened)
            elif checkpoint.self_contained:
                raise UnsupportedError(
                    f"{next(iter(checkpoint.shards))}: its weights have other names than adapters"
                    " have",
                    remedy="merge into the model that it was made of, and convert that",
                )
            ledger = merged(ledger, asked, checkpoint.read_config(), opened)
        return checkpoint, ledger, asked

    def _asked(self, to: Named | None, out: Any, options: Mapping[str, Any]) -> Target:
        from anamnesis.convert.decide.renames import is_gguf_of_llama_cpp
        from anamnesis.convert.request.targets import asked_target

        of_gguf = options.get("names") != "keep" and is_gguf_of_llama_cpp(self._checkpoint)
        return asked_target(to, out, of_gguf=of_gguf, dtype=options.get("dtype"))

    def plan(
        self,
        to: Named = "safetensors",
        *,
        measure: bool | int = False,
        **options: Unpack[ConvertOptions],
    ) -> Plan:
        """Return what `convert` would write; writes nothing, and reads no tensors unless asked to.

        Nothing is opened either, but for the config beside a file with layers named like GPT-2's.

        Parameters
        ----------
        to : str or Encoding
        measure : bool or int
            Measure what the encoding takes, with the encoder itself: True of everything, 16 of so
            many bands of a megabyte or two each, spread over the model. `Plan.measured` has it.
        **options
            Those of `convert`.

        Returns
        -------
        Plan
            Tensors that cannot be read are among its problems, and do not raise.

        Raises
        ------
        LimitExceeded, UnsupportedError, ParseError, ValueError
            If there can be no such output.
        """
        from anamnesis.convert.decide.decide import decide
        from anamnesis.convert.decide.renames import seen_as_asked
        from anamnesis.convert.plan.outputs import make_plan
        from anamnesis.convert.request.resolve import resolve

        if measure is not True and whole_number("measure", measure, least=None) < 0:
            raise ValueError(f"measure must be True, or a number of bands, not {measure}")
        asked = resolve(self._asked(to, None, options), None, limits=self._limits, **options)
        with ExitStack() as opened:
            made = make_plan(decide(seen_as_asked(*self._edited(asked, opened))))
            if measure:
                from anamnesis.convert.write import sample

                n_bands = None if measure is True else measure
                made.measured = sample.measure(made, n_bands, asked.how)
        return made

    @checked
    def fit(
        self,
        *,
        target_size: Size | None = None,
        target_bpw: float | None = None,
        types: Word | Sequence[Word] = ("k",),
        least: Mapping[str, Word] | None = None,
        most: Mapping[str, Word] | None = None,
        full: bool = False,
        journal: str | os.PathLike[str] | None = None,
        **options: Unpack[ConvertOptions],
    ) -> Fit:
        """Choose a type of GGUF's for each weight, so that all fit a size with the least error.

        The error is the sum of squared errors that the encoders themselves make, by importance if
        there is an importance matrix. As it was measured, it is never above that of a mix of
        llama-quantize's of that size, if the types are those of the mix. The error of
        weights is not the quality of a model.

        Parameters
        ----------
        target_size : int or str
            Bytes, or a text such as "5GB", that the file may have; or
        target_bpw : float
            bits that a value may take on average, blocks' scales and plain tensors among them.
        types : str or sequence of str
            What there is to choose from: names such as `q4_k`, and families: `k` (Q2_K to Q6_K,
            and Q8_0), `iq`, `legacy`.
        least, most : mapping of str to str
            For names of weights, with wildcards, the type with the fewest or the most bits that
            they may get; the first that fits decides.
        full : bool
            Measure all values of each weight; else some 260,000 that are spread over it.
        journal : path, optional
            Where errors are kept as they are measured, so that another run goes on from them.
        **options
            Those of `convert`: `imatrix`, `exclude`, `overrides`, `threads`, `progress`, …

        Returns
        -------
        Fit
            Its `types` are by weight, `plan` is what would be written, and `recipe()` the text of
            a recipe that `convert` takes.

        Raises
        ------
        UnsupportedError
            If no types are small enough, or a value has no code.
        OutputError
            If the journal is of another model.
        ValueError
            If none or both of the targets are given, a pattern fits no weight, or there is no such
            type.
        """
        from anamnesis.convert.fit.errors import SAMPLE
        from anamnesis.convert.fit.fit import FitOptions, Fitting
        from anamnesis.convert.request.resolve import importance_of

        asked = FitOptions(
            size=cast("int | None", target_size),
            bits=target_bpw,
            types=cast("tuple[str, ...]", types),
            least=cast("tuple[tuple[str, str], ...]", tuple((least or {}).items())),
            most=cast("tuple[tuple[str, str], ...]", tuple((most or {}).items())),
            sample=None if full else SAMPLE,
            journal=journal,
        )
        if (given := options.get("imatrix")) is not None:
            options["imatrix"] = importance_of(given, self._limits)  # once, not for each try
        return Fitting(self._checkpoint, self._ledger, asked, options).fit()
