"""What a mix of GGUF's types makes of a model: types, order and header."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from anamnesis.base.dropped import Dropped
from anamnesis.base.dtypes import OUTPUT_DTYPES
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.stored import StoredTensor
from anamnesis.convert.ask.mix import AskedMix
from anamnesis.convert.ask.request import Request
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.plain_encoding import PlainEncoding
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.encodings import find, made
from anamnesis.schemes.ggml.choose import Choice, Given, choose
from anamnesis.schemes.ggml.finite import finite_encoding
from anamnesis.schemes.ggml.header import (
    ImatrixOf,
    file_type,
    header_edits,
    in_order,
    model_facts,
    without_layers,
)

_ARCHITECTURE = "general.architecture"
_PRUNED = "its layer is left out"


class Mixing:
    """A mix, of a model."""

    def __init__(
        self,
        mix: AskedMix,
        request: Request,
        weights: Sequence[Weight],
        stored: Mapping[str, StoredTensor],
        metadata: Mapping[str, Any],
    ) -> None:
        self._mix = mix
        self._request = request
        self._metadata = metadata
        of_name = {weight.name: weight for weight in weights}
        ordered = list(of_name) if mix.keep_split else in_order(of_name)
        self._dtypes = [stored[n].dtype.name for n in in_order(of_name) if n in stored]
        self.names: dict[str, str] = {name: name for name in ordered}
        self._n_layers: int | None = None
        if mix.prune_layers:
            self.names, self._n_layers = without_layers(in_order(of_name), mix.prune_layers)
        self.dropped = [Dropped(name, _PRUNED) for name in of_name if name not in self.names]
        self._places = {name: i for i, name in enumerate(n for n in ordered if n in self.names)}
        self.left: dict[str, str] = {}
        self.encodings: dict[str, Encoding] = {}
        self.why: dict[str, str] = {}
        self.misfits: dict[str, str] = {}
        self._made: dict[str, Encoding] = {}
        self._choose(of_name)

    def _choose(self, weights: Mapping[str, Weight]) -> None:
        request, mix = self._request, self._mix
        overrides = {name: request.override(name) for name in self._places}
        asked = {name: _type_of(o[1]) for name, o in overrides.items() if o is not None}
        given = [
            Given(self.names[name], weights[name].shape, asked.get(name)) for name in self._places
        ]
        chosen = choose(
            given,
            model_facts(self._metadata, mix.override_kv),
            mix.name,
            mix.options,
            has_imatrix=request.imatrix is not None,
        )
        for name in self._places:
            choice = chosen[self.names[name]]
            if _is_beyond(choice, name, overrides[name]):
                continue
            if choice.type is None:
                self.left[name] = choice.why
                continue
            encoding = self._encoding(choice.type)
            if choice.needs_imatrix or getattr(encoding.codes, "needs_importance", False):
                self._check_importance(weights[name], choice)
            self.encodings[name] = encoding
            self.why[name] = choice.why
            if choice.is_misfit:
                self.misfits[name] = f"{choice.why}, and become {choice.type}"

    def _check_importance(self, weight: Weight, choice: Choice) -> None:
        """Refuse a type that is garbage without importance, as llama-quantize does."""
        imatrix = self._request.imatrix
        if not self._request.wants(weight.name):
            return
        if imatrix is None or imatrix.importance(weight.name, weight.shape) is None:
            has = "which is not there" if imatrix is None else "which has no entry for it"
            raise UnsupportedError(
                f"{weight.name!r} becomes {choice.type}, which is garbage without an importance"
                f" matrix, {has}",
                remedy="give imatrix=..., or another type for it",
            )

    def _encoding(self, type: str) -> Encoding:
        """Return the encoding of a type; one object for each."""
        if type not in self._made:
            row = find(f"gguf-{type.lower()}")
            dtype = OUTPUT_DTYPES.get(type.lower())
            self._made[type] = finite_encoding(dtype) if dtype is not None else made(_known(row))
        return self._made[type]

    @property
    def told(self) -> dict[str, str]:
        """By weight, what it is that says its type, or that it stays as it is."""
        return {**self.why, **self.left}

    def place(self, name: str) -> int:
        """Return the place of a weight in the output; those that are not the model's come last."""
        return self._places.get(name, len(self._places))

    def is_told(self, name: str) -> bool:
        """Tell whether the mix says what a weight becomes, an override's wishes among it."""
        return name in self.encodings or name in self.left

    def header(self) -> tuple[Iterable[str], Mapping[str, Any]]:
        """Return the keys that go from a header, and typed values that come behind all others."""
        mix, imatrix = self._mix, self._request.imatrix
        told = None
        if imatrix is not None:
            told = ImatrixOf(imatrix.file, imatrix.datasets, imatrix.n_entries, imatrix.n_chunks)
        layers = None
        if self._n_layers is not None:
            layers = str(self._metadata.get(_ARCHITECTURE, "")), self._n_layers
        number = file_type(mix.name, self._metadata, mix.override_kv, self._dtypes)
        edits = header_edits(number, tuple(mix.override_kv.items()), told, layers)
        return edits.gone, edits.new


def _type_of(encoding: Encoding | None) -> str | None:
    """Return ggml's name of what an override asks for; None if ggml has none."""
    if isinstance(encoding, PlainEncoding):
        return encoding.dtype.name
    codes = None if encoding is None else encoding.codes
    return getattr(codes, "block_type", None)


def _is_beyond(choice: Choice, name: str, override: tuple[str, Encoding | None] | None) -> bool:
    """Tell whether an override says what the mix does not: no type of ggml's, or of what it keeps.

    A glob that asks for a type reaches what the mix quantises alone, and no norm or router.
    """
    if override is None:
        return False
    pattern, encoding = override
    type = _type_of(encoding)
    return type is None or (choice.type is None and pattern == name)


def _known(row: Any) -> Any:
    assert row is not None  # the types of the rules are those of the table
    return row
