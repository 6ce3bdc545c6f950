"""What becomes of a model: one value for each weight, decided in four stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from anamnesis.base.dropped import ASKED, Dropped
from anamnesis.base.dtypes import DTYPES
from anamnesis.base.errors import AnamnesisError, UnsupportedError
from anamnesis.base.stored import StoredTensor
from anamnesis.checkpoint.metadata import left_behind
from anamnesis.checkpoint.open import Checkpoint
from anamnesis.convert.ask.request import Request
from anamnesis.convert.decide.account import Account, counted
from anamnesis.convert.decide.declaration import Declaration
from anamnesis.convert.decide.keeping import Kept
from anamnesis.convert.decide.names import Named, as_asked, codes_apart, put_together, taken_apart
from anamnesis.convert.decide.possible import Fate, Move, Piece, Possible, given_up, moves_of
from anamnesis.convert.decide.wish import OVERRIDDEN, Asked, Wish
from anamnesis.convert.tell.problems import first_of, unwritable_weights
from anamnesis.formats.base import Writer
from anamnesis.schemes.claim.facts import QuantFacts, read_facts
from anamnesis.schemes.claim.ledger import Ledger
from anamnesis.schemes.claim.names import is_auxiliary
from anamnesis.schemes.claim.orientation import conv1d_layers
from anamnesis.schemes.core.edited import Edited
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.plain import Plain
from anamnesis.schemes.core.plain_encoding import plain_encoding
from anamnesis.schemes.core.weight import Weight

if TYPE_CHECKING:
    from anamnesis.convert.decide.mix import Mix

_ONLY_TOLD_OF = "unreadable, without bytes to pass on"
_DECODE = "decode it instead"
_DIRECTORY = "write a directory of safetensors, which has a config that says so, or decode it"


def decide(checkpoint: Checkpoint, ledger: Ledger, request: Request) -> Decided:
    """Return what becomes of a model: names, wishes, what is possible, what a config can say."""
    request = _of_mix(request, checkpoint)
    writer = request.writer()
    unwritable = unwritable_weights(ledger.weights.values(), writer)
    problems = {**ledger.problems, **unwritable}
    weights = {name: w for name, w in ledger.weights.items() if name not in unwritable}
    mix = mix_for(request, checkpoint, ledger, weights)
    asked = _asked(request, mix, checkpoint, ledger)
    named = Named(list(weights.values()) if mix is None else mix.weights)
    named, asked = _with_experts(named, asked, checkpoint, ledger, may_join=not problems)
    wished, moves = _wished(named, asked)
    apart = codes_apart(named, asked, ledger, moves)
    if apart is not named:
        named, (wished, moves) = apart, _wished(apart, asked)
    asked.check_patterns([*ledger.weights, *named.stack_of])
    possible = Possible(asked, writer, ledger.stored, named.stack_of)
    wished = _in_order(wished, asked, ledger.stored)
    fates = [possible.fate(weight, wish, moves.get(weight.name)) for weight, wish in wished]
    unread = _unread(problems, ledger) if request.allow_unknown else []
    fates += [possible.passed(tensor) for tensor in unread if not _is_only_told_of(tensor)]
    left = [Dropped(tensor.name, _ONLY_TOLD_OF) for tensor in unread if _is_only_told_of(tensor)]
    decided = Decided(checkpoint, ledger, asked, writer, named, problems, fates, left)
    decided = _declarable(decided, possible)
    decided.check_names()
    return decided


def _of_mix(request: Request, checkpoint: Checkpoint) -> Request:
    """Return what a request for a mix means of a model: one of plain values is of GGUF files."""
    mix = request.mix
    if mix is None:
        return request
    if request.encoding is None and not checkpoint.self_contained:
        return replace(request, mix=None)
    from anamnesis.schemes.ggml.mixes import COPY  # only here, for the sake of a quick start

    keeps = request.encoding is not None or mix.name == COPY
    return replace(request, keep_blocks=keeps, cast_all=False)


def mix_for(
    request: Request, checkpoint: Checkpoint, ledger: Ledger, weights: Mapping[str, Weight]
) -> Mix | None:
    """Return what the mix that is asked for makes of a model; None if there is none."""
    if request.mix is None:
        return None
    from anamnesis.convert.decide.mix import mix_of  # only here, for the sake of a quick start
    from anamnesis.formats.gguf.values import untyped

    of_gguf = (c.metadata for c in checkpoint.shards.values() if c.id == "gguf")
    return mix_of(request.mix, request, weights, ledger.stored, untyped(next(of_gguf, {})))


def _asked(request: Request, mix: Mix | None, checkpoint: Checkpoint, ledger: Ledger) -> Asked:
    if mix is not None:
        typed = mix.types.items()
        return Asked(
            replace(request, numbered=mix.names),
            mix,
            {name: one.why for name, one in typed if one.encoding is None},
            {name: one.encoding for name, one in typed if one.encoding is not None},
        )
    asked = Asked(request)
    turns = any(encoding.layout.conv1d != "as stored" for encoding in asked.encodings)
    if turns and not checkpoint.self_contained:
        return replace(asked, conv1d=conv1d_layers(ledger))
    return asked


def _with_experts(
    named: Named, asked: Asked, checkpoint: Checkpoint, ledger: Ledger, *, may_join: bool
) -> tuple[Named, Asked]:
    """Return the weights with experts as is asked, or as tools do, and what the tool does else."""
    weights, container = named.weights, asked.request.writer()
    if asked.request.experts is not None:
        named = as_asked(weights, asked, ledger, container.id)
    asked = asked.by_tool(named.weights, checkpoint.config)
    if asked.experts_tool is not None:
        return taken_apart(named, asked, ledger)[0], asked
    is_plain = may_join and not (asked.encodings or asked.request.overrides)
    if is_plain and asked.request.experts is None and not container.self_contained:
        named = put_together(weights, asked, ledger)
    return named, asked


def _wished(named: Named, asked: Asked) -> tuple[list[tuple[Weight, Wish]], dict[str, Move]]:
    """Return what is asked of each weight, and whose codes can be moved."""
    asked = replace(asked, left={**asked.left, **named.left}) if named.left else asked
    also = named.aliases.get
    wished = [(weight, asked.wish(weight, also(weight.name))) for weight in named.weights]
    return wished, moves_of(wished)


def _in_order(
    wished: list[tuple[Weight, Wish]], asked: Asked, stored: Mapping[str, StoredTensor]
) -> list[tuple[Weight, Wish]]:
    """Return weights as they are stored; safetensors sort theirs anyway, and a mix has sorted."""
    places = {name: i for i, name in enumerate(stored)}
    firsts = {weight.parts[0].name for weight, _ in wished}
    is_sorted = asked.mix is not None or asked.request.form.container == "safetensors"
    if is_sorted or not firsts <= places.keys():  # else of other names
        return wished
    return sorted(wished, key=lambda case: places[case[0].parts[0].name])


def _declarable(decided: Decided, possible: Possible) -> Decided:
    """Return it with what no config would tell from moved codes left plain, or nothing moved.

    Plain weights stay plain beside codes in settings of their own; if that is not enough, no such
    codes are moved.
    """
    why = (
        decided.why_undeclared
        if any(f.is_beside for f in decided.fates if f.kind == "moved")
        else None
    )
    if why is None:
        return decided
    fates = [
        possible.fate(fate.weight, fate.wish._replace(refused=why), fate.move)
        if fate.kind == "quantised" and fate.wish.pattern is None
        else fate
        for fate in decided.fates
    ]
    plainer = replace(decided, fates=fates)
    if plainer.why_undeclared is None:
        return plainer
    fates = [
        possible.fate(fate.weight, fate.wish, given_up(fate, why)) if fate.is_beside else fate
        for fate in decided.fates
    ]
    return replace(decided, fates=fates)


@dataclass(frozen=True)
class Decided:
    """What becomes of a model. Tensors with problems pass if the request allows that."""

    checkpoint: Checkpoint
    ledger: Ledger
    asked: Asked
    writer: Writer
    named: Named
    problems: Mapping[str, AnamnesisError]
    fates: list[Fate]
    unread: list[Dropped]  # what has no bytes to pass on

    @property
    def request(self) -> Request:
        """What is asked for."""
        return self.asked.request

    @property
    def mix(self) -> Mix | None:
        """The mix of GGUF's types."""
        return self.asked.mix

    @cached_property
    def kept(self) -> Kept:
        """The weights that are copied as they are stored, and what stays beside them."""
        return Kept(self.ledger, (fate.weight for fate in self.fates if fate.kind == "kept"))

    @cached_property
    def pieces(self) -> list[Piece]:
        """All that is written, in the order of the model."""
        pieces = [piece for fate in self.fates for piece in fate.pieces]
        for stored, _ in self.kept.beside:
            same = Plain(stored.name, stored.shape, (stored,))
            name = self.request.renamed(stored.name)
            pieces.append(Piece(same, plain_encoding(stored.dtype), name))
        return pieces

    @property
    def dense(self) -> bool:
        """Whether nothing that is written is quantised as the source describes it."""
        return not self.problems and not self.kept.codes

    @cached_property
    def decoded(self) -> list[Piece]:
        """What is quantised in the source, and written as values."""
        return [
            one
            for one in self.pieces
            if one.is_plain and (one.weight.own_dtype is None or len(one.weight.parts) > 1)
        ]

    @cached_property
    def moved(self) -> dict[str, tuple[Encoding, ...]]:
        """Whose codes are moved, and into what; any of the encodings says it."""
        repacks = {fate.weight.name: fate.repack for fate in self.fates if fate.kind == "moved"}
        return {name: repack.encodings for name, repack in repacks.items() if repack is not None}

    @property
    def encoded(self) -> list[str]:
        """The source's names of those that are quantised in the output as nothing of it was."""
        return [*(one.weight.name for one in self.pieces if not one.is_plain), *self.moved]

    @cached_property
    def declaration(self) -> Declaration:
        """What the output says of the encodings of its weights."""
        return Declaration(
            self.pieces,
            self.moved,
            self.asked.others,
            self.request,
            self.writer,
            self.checkpoint.config,
            is_dense=self.dense,
        )

    @property
    def why_undeclared(self) -> str | None:
        """Why the output cannot say what it is in; None if it can."""
        is_directory = self.checkpoint.root is not None
        try:
            if self.request.form.becomes_file(directory=is_directory):
                self.declaration.settings()
            elif self.checkpoint.has_config:
                self.declaration.sections()
        except UnsupportedError as error:
            return error.message
        return None

    def account(self, left: Iterable[Dropped] = (), described: Iterable[str] = ()) -> Account:
        """Count it, with what is left out of files beside, and files that go on describing it."""
        ledger, kept = self.ledger, {id(dropped) for _, dropped in self.kept.beside}
        weights = list(ledger.weights.values())
        edited = [w for w in weights if isinstance(w, Edited) and w.name not in self.problems]
        gone = [one for one in ledger.dropped if id(one) not in kept]
        asked = [ledger.stored[one.name].n_bytes for one in ledger.dropped if one.reason == ASKED]
        of_files = left_behind(self.checkpoint.shards.values(), self.writer.id)
        of_mix = () if self.mix is None else self.mix.dropped
        return Account(
            n_in=len(ledger.stored),
            n_bytes_in=sum([one.n_bytes for one in ledger.stored.values()]) - sum(asked),
            n_parameters=sum([weight.n_elements for weight in weights]),
            dropped=(*gone, *self.unread, *of_files, *self.checkpoint.left_out, *of_mix, *left),
            unknown=tuple([fate.weight.name for fate in self.fates if fate.kind == "passed"]),
            problems=self.problems,
            still_quantized=tuple(described),
            taken_apart=self.named.taken_apart,
            put_together=self.named.put_together,
            edited=tuple([weight.name for weight in edited]),
            n_bytes_edited=_n_bytes_edited(edited, self.request.threads),
            **counted(self.fates, ledger.stored),
        )

    # --- what may not be -----------------------------------------------------------------------

    def check(self) -> None:
        """Refuse what may not pass."""
        request, encoding = self.request, self.request.encoding
        if self.problems and not request.allow_unknown:
            raise first_of(self.problems)
        if self.checkpoint.lone_part is not None and not request.allow_unknown:
            raise UnsupportedError(self.checkpoint.lone_part)
        for name in self.ledger.problems:
            if name in self.ledger.weights:
                raise UnsupportedError(f"a weight and a tensor that is passed on are {name!r}")
        whys = [fate.why for fate in self.fates if fate.kind != "passed"]
        unfit = [why for why in whys if why not in (None, OVERRIDDEN)]
        if encoding is not None and len(unfit) == len(whys):
            reasons = "; ".join(dict.fromkeys(map(str, unfit))) or "there is none"
            raise UnsupportedError(
                f"no weight of the model suits {encoding.id}: {reasons}",
                remedy=_who_quantises(encoding),
            )

    def check_names(self) -> None:
        """Refuse to rename nothing, or a plain weight to what would be read as a part of codes."""
        if not self.request.rename:
            return
        self.request.check_renaming([piece.weight.name for piece in self.pieces])
        if self.writer.self_contained:
            return
        plain = {piece.name: piece for piece in self.pieces if piece.is_plain}
        parts = {
            name: piece.weight.parts[0]._replace(name=name, dtype=piece.dtype)
            for name, piece in plain.items()
        }
        for name, piece in plain.items():
            was = is_auxiliary(piece.weight.parts[0], self.ledger.stored)
            if name != piece.weight.name and not was and is_auxiliary(parts[name], parts):
                raise UnsupportedError(
                    f"{piece.weight.name!r} cannot be called {name!r}, which is read as a part of a"
                    " quantised weight; give it another name"
                )

    def check_kept(self, config: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
        """Refuse codes that are kept, and would be read as something else."""
        if not self.kept.codes:
            return
        writer, own = self.writer, self.ledger.facts

        def facts() -> QuantFacts:
            said = QuantFacts() if writer.self_contained else read_facts(config, metadata)
            tiles = own.tiles if writer.id == "safetensors" else False
            return said.given(None, own.conv1d, tiles, folds=own.folds)

        self.kept.check(
            facts,
            self.request.renamed,
            [fate.weight.name for fate in self.fates if fate.kind == "passed"],
            self_contained=writer.self_contained,
            remedy=_DECODE if self.checkpoint.root is None else _DIRECTORY,
        )


def _n_bytes_edited(edited: list[Edited], threads: int) -> int:
    """Return what functions make in float32 that is in memory at once: of one weight, or two."""
    made = [4 * weight.n_elements for weight in edited if weight.is_made]
    return sum(sorted(made)[-min(2, threads) :])


def _who_quantises(encoding: Encoding) -> str | None:
    """Return what to do where an encoding that only moves codes finds none."""
    if encoding.codes is not None:
        return None
    from anamnesis.convert.loaders.absent import absent, who_quantises

    return absent(encoding.id) or f"it quantises nothing; {who_quantises(encoding.id)}"


def _unread(problems: Iterable[str], ledger: Ledger) -> list[StoredTensor]:
    """Return the stored tensors of problems, and those that weights of such names are made of."""
    stored, weights = ledger.stored, ledger.weights
    of_each = [(stored[n],) if n in stored else weights[n].parts for n in problems]
    return [tensor for some in of_each for tensor in some]


def _is_only_told_of(tensor: StoredTensor) -> bool:
    """Tell whether a stored tensor that nobody can decode has no bytes of its own either.

    So it is with torch's sparse and quantised tensors, which are made of others.
    """
    return tensor.dtype.name not in DTYPES and not tensor.n_bytes
