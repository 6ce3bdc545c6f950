"""What `inspect` tells of a model: from its headers alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from anamnesis.base.plain_json import plain_json
from anamnesis.base.printable import abbreviate, numbered, printable, shortened
from anamnesis.base.sizes import format_size
from anamnesis.base.stored import Dropped
from anamnesis.schemes.core.roles import CODES, counted
from anamnesis.schemes.detect.unread import ADVICE, UNREAD

_LONGEST = 2000  # characters of a line
_ROOM = 66  # characters beside a label
_SHOWN = 5  # names in a list before "and N more"


@dataclass(frozen=True, slots=True, repr=False)
class Inspection:
    """The facts of a model; `str()` prints them, `to_dict()` gives them to scripts.

    Attributes
    ----------
    format_id, format : str
        The container: `gguf`; the same for people, with its version or kind: `GGUF v3`.
    files : int
    schemes : dict of str to int
        Quantised weights by encoding, in words.
    scale_dtypes : dict of str to int
        Parts of quantised weights beside their codes, by dtype.
    roles : dict of str to dict of str to int
        The same parts by what they are (scales, zero points, group indices, …), and by dtype.
    passthrough : dict of str to int
        Weights that are not quantised, by dtype.
    passthrough_kinds : tuple of str
        What they are: norms, embeddings, ...
    n_tensors, n_quantized, n_scales, n_passthrough : int
        Stored tensors; quantised weights; their scales; weights that are not quantised.
    dropped : tuple of Dropped
        What the output leaves out, by rule.
    problems : dict of str to str
        What cannot be read, and why.
    n_bytes, n_bytes_out : int
        Size of all tensors as they are stored, and remembered to `dtype_out`.
    dtype_out : str
    metadata : dict of str to anything
        With types in words for arrays that are not read yet.
    dtypes : dict of str to int
        Stored tensors by dtype.
    architecture : str or None
        Of a GGUF llama.cpp's name, of a directory the class that config.json names: `llama`,
        `LlamaForCausalLM`. None, as the next two, where nothing says it.
    context_length, n_vocabulary : int or None
        Tokens that it takes, and that it knows.
    name, size_label, license : str or None
        What a GGUF's header says; of a directory its own name, its parameters (`8.0B`), and what
        its model card says.
    mix : str or None
        Of a GGUF what llama-quantize calls its types: `Q4_K_M`.
    chat_template : bool or None
        Whether the tokenizer has one.
    loaded_by : tuple of str
        Programs that load it, of GGUFs and directories.
    facts : dict of str to anything
        What the container has to tell beside; of GGUF `version`, `byte_order`, `arch`, `alignment`.
    tied : tuple of tuple of str
        Names of one and the same tensor, where the container tells; each is written by itself.
    n_parameters : int or None
        Elements of all weights, tied ones once; None if the shapes of some are not known.
    bits_per_weight : float or None
        What each takes on average as it is stored, scales and all.
    lethe_took : int
        Bytes of precision lost when the model was quantised: what its weights would take in 16
        bits, in which models are trained, less what they take as they are stored.
    unread : dict of str to int
        Weights that cannot be decoded yet by encoding, in words.
    unread_bytes : dict of str to int
        Size of what cannot be read by encoding; under an empty one what has none.
    rounded_between : dict of str to int
        Quantised weights whose library rounds in between, so that `math="reference"` gives other
        values at `dtype_out`, by encoding in words.
    file_names : tuple of str
    notes : tuple of str
        What else to know of it, in sentences.
    """

    format_id: str
    format: str
    files: int
    n_tensors: int
    schemes: dict[str, int]
    n_quantized: int
    n_scales: int
    scale_dtypes: dict[str, int]
    n_passthrough: int
    passthrough: dict[str, int]
    passthrough_kinds: tuple[str, ...]
    dropped: tuple[Dropped, ...]
    problems: dict[str, str]
    n_bytes: int
    n_bytes_out: int
    dtype_out: str
    quantized_as: str
    metadata: dict[str, Any]
    dtypes: dict[str, int]
    architecture: str | None = None
    context_length: int | None = None
    n_vocabulary: int | None = None
    name: str | None = None
    size_label: str | None = None
    mix: str | None = None
    license: str | None = None
    chat_template: bool | None = None
    loaded_by: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    tied: tuple[tuple[str, ...], ...] = ()
    n_parameters: int | None = None
    bits_per_weight: float | None = None
    lethe_took: int = 0
    unread: dict[str, int] = field(default_factory=dict)
    unread_bytes: dict[str, int] = field(default_factory=dict)
    rounded_between: dict[str, int] = field(default_factory=dict)
    file_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    roles: dict[str, dict[str, int]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as values that JSON has.

        `files` are their names, as in what `amn parse --json` writes, and `n_files` how many there
        are. NaN and infinities in metadata are the strings `NaN`, `Infinity` and `-Infinity`.
        """
        told = asdict(self)
        told["metadata"] = plain_json(self.metadata)
        told["files"], told["n_files"] = told.pop("file_names"), self.files
        return {**told.pop("facts"), **told}

    def __repr__(self) -> str:
        schemes = ", ".join(f"{n:,} {printable(scheme)}" for scheme, n in self.schemes.items())
        found = f", {numbered(len(self.problems), 'problem')}" if self.problems else ""
        return (
            f"<anamnesis.Inspection: {printable(self.format)},"
            f" {numbered(self.n_tensors, 'tensor')}, {schemes or 'none quantised'},"
            f" {format_size(self.n_bytes)}{found}>"
        )

    def __str__(self) -> str:
        rows = ((f"{label}:" if label else "", text) for label, text in self.rows())
        return "\n".join(f"{label:<13}{shortened(text, _LONGEST)}" for label, text in rows)

    def _repr_html_(self) -> str:
        from anamnesis.base.html import html_table

        return html_table(self.rows())

    def rows(self) -> Iterable[tuple[str, str]]:
        """Yield what `str()` prints, as labels and texts."""
        yield from self._container_rows() if self.format_id == "gguf" else self._scheme_rows()
        if self.loaded_by:
            yield "Loads in", ", ".join(self.loaded_by)
        for note in self.notes:
            yield "Note", note
        problems = [
            f"{numbered(n, 'weight')} in {encoding}, {format_size(self.unread_bytes[encoding])},"
            f" {UNREAD}"
            for encoding, n in self.unread.items()
        ]
        problems += [ADVICE] if self.unread else []
        marks = [f": {encoding} {UNREAD}" for encoding in self.unread]
        by_error = Counter(  # parts of one weight share theirs
            error for error in self.problems.values() if not any(mark in error for mark in marks)
        )
        problems += list(by_error)[:_SHOWN]
        rest = sum(list(by_error.values())[_SHOWN:])
        if rest:
            problems.append(f"and {rest:,} more tensors that cannot be read")
        for i, problem in enumerate(problems):
            yield "" if i else "Problems" if len(problems) > 1 else "Problem", problem

    def _container_rows(self) -> Iterable[tuple[str, str]]:
        """Rows for a container each of whose tensors is a weight by itself."""
        yield "Format", self.format
        if self.files > 1:
            yield "Files", f"{self.files:,}"
        yield from self._about_rows()
        yield "Tensors", f"{self.n_tensors:,}"
        if self.dtypes:
            types = ", ".join(f"{name} ({n:,})" for name, n in self.dtypes.items())
            yield "Types", f"{self.mix}: {types}" if self.mix else types
        yield from self._size_rows()
        yield "Alignment", f"{self.facts['alignment']} bytes"

    def _scheme_rows(self) -> Iterable[tuple[str, str]]:
        """Rows for a container in which several tensors make a weight."""
        yield from self._format_rows()
        yield from self._about_rows()
        if self.n_quantized:
            told = [f"{numbered(self.n_quantized, 'tensor')} (weights)"]
            told += [
                f"{counted(role, sum(n.values()))} ({', '.join(n)})"
                for role, n in self.roles.items()
                if role != CODES
            ]
            for i, line in enumerate(_lines(told)):
                yield "" if i else "Quantised", line
        kinds = f" ({', '.join(self.passthrough_kinds)})" if self.passthrough_kinds else ""
        yield "Passthrough", f"{numbered(self.n_passthrough, 'tensor')}{kinds}"
        if self.dropped:
            from textwrap import wrap

            reasons = ", ".join(counted_up(one.reason for one in self.dropped))
            row = f"{numbered(len(self.dropped), 'tensor')} ({reasons})"
            for i, line in enumerate(wrap(row, _ROOM)):
                yield "" if i else "Dropped", line
        yield from self._size_rows()
        if self.rounded_between:
            n = sum(self.rounded_between.values())
            yield "Math", f"float32 and reference differ in {numbered(n, 'tensor')}"
        if "byte_order" in self.facts:
            yield "Byte order", f"{self.facts['byte_order']}-endian"
        for names in self.tied[:_SHOWN]:
            yield "Tied", f"{abbreviate(names)} are one tensor"
        if len(self.tied) > _SHOWN:
            yield "", f"and {len(self.tied) - _SHOWN:,} more"

    def _about_rows(self) -> Iterable[tuple[str, str]]:
        template = {True: "has a template", False: "no template", None: None}
        rows = {
            "Name": self.name and ", ".join(filter(None, (self.name, self.size_label))),
            "License": self.license,
            "Arch": self.architecture,
            "Context": self.context_length and numbered(self.context_length, "token"),
            "Vocabulary": self.n_vocabulary and numbered(self.n_vocabulary, "token"),
            "Chat": template[self.chat_template],
        }
        yield from ((label, text) for label, text in rows.items() if text)

    def _size_rows(self) -> Iterable[tuple[str, str]]:
        """Rows for the size as it is stored and as it would be, in all and of a parameter."""
        if not self.n_quantized or self.unread_bytes:
            held = [name.partition(" (")[0] for name in self.unread]  # without who writes it
            held += [*filter(None, [self.quantized_as]), *self.passthrough]
            what = ", ".join(dict.fromkeys(held)) or self._nothing("empty")
            yield "Size", f"{format_size(self.n_bytes)} ({what})"
        else:
            was = f"{format_size(self.n_bytes)} ({self.quantized_as})"
            yield "Size", f"{was} -> {format_size(self.n_bytes_out)} ({self.dtype_out})"
            yield "Lethe took", f"~{format_size(self.lethe_took)}, when the model was quantised"
            if self.dtype_out == "F32":
                yield "Output", f"grows by {format_size(max(0, self.n_bytes_out - self.n_bytes))}"
        if self.n_parameters:
            yield "Parameters", f"{self.n_parameters:,}, {self.bits_per_weight:.4g} bits each"

    def _nothing(self, words: str) -> str:
        return "nothing that can be read" if self.problems else words

    def _format_rows(self) -> Iterable[tuple[str, str]]:
        if not self.schemes:
            held = [*self.unread, *self.passthrough]
            dtypes = ", ".join(held) or self._nothing("no tensors")
            yield "Format", f"{self.format}, {dtypes}"
        elif len(self.schemes) == 1:
            (scheme,) = self.schemes
            yield "Format", scheme[0].upper() + scheme[1:]
        else:
            for i, (scheme, n) in enumerate(self.schemes.items()):
                yield (
                    "" if i else "Format",
                    f"{scheme[0].upper()}{scheme[1:]}: {numbered(n, 'tensor')}",
                )
        if self.files > 1:
            yield "Files", f"{self.files:,}"


def _lines(told: Iterable[str], width: int = _ROOM) -> list[str]:
    """Return words joined by plus signs, in lines that have room beside their label."""
    lines: list[str] = []
    for one in told:
        if lines and len(lines[-1]) + 3 + len(one) <= width:
            lines[-1] += f" + {one}"
        else:
            lines.append(f"+ {one}" if lines else one)
    return lines


def counted_up(items: Iterable[str]) -> dict[str, int]:
    """Return how often each is there, the most frequent first."""
    return dict(Counter(items).most_common())
