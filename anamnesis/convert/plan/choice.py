"""What each weight of a model is written as, and what becomes of the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from anamnesis.base.dropped import ASKED, Dropped
from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.stored import StoredTensor
from anamnesis.checkpoint.metadata import left_behind
from anamnesis.checkpoint.open import Checkpoint
from anamnesis.convert.ask.request import Request
from anamnesis.convert.plan.account import Account
from anamnesis.convert.plan.asked import Asked
from anamnesis.convert.plan.declaration import Declaration
from anamnesis.convert.plan.experts import Experts
from anamnesis.convert.plan.files import OutputWeight
from anamnesis.convert.plan.keeping import Kept
from anamnesis.convert.plan.moves import Moves
from anamnesis.convert.tell.problems import another_format, first_of, unwritable_weights
from anamnesis.schemes.claim.facts import QuantFacts, read_facts
from anamnesis.schemes.claim.ledger import Ledger
from anamnesis.schemes.claim.names import is_auxiliary
from anamnesis.schemes.claim.orientation import conv1d_layers
from anamnesis.schemes.core.edited import Edited
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.layout import Repack
from anamnesis.schemes.core.plain import Moved, Plain, plain_dtype
from anamnesis.schemes.core.plain_encoding import PlainEncoding, plain_encoding
from anamnesis.schemes.core.rounding import by_math
from anamnesis.schemes.core.weight import Weight

if TYPE_CHECKING:
    from anamnesis.convert.plan.mixing import Mixing

_ONLY_TOLD_OF = "unreadable, without bytes to pass on"
_OVERRIDDEN = "as an override asks"
_WEIGHT = ".weight"
_MAY_LOSE = "exclude it, or leave out lossless=True"
_DECODE = "decode it instead"
_DIRECTORY = "write a directory of safetensors, which has a config that says so, or decode it"


class Choice:
    """The weights to be written, in the order of the model, and the account of all others.

    Tensors with problems are passed on as they are if the request allows that, else left out.
    """

    def __init__(self, checkpoint: Checkpoint, ledger: Ledger, request: Request) -> None:
        request = _of_mix(request, checkpoint)
        self._ledger = ledger
        self._lone_part = checkpoint.lone_part
        self._writer = request.writer()
        unwritable = unwritable_weights(ledger.weights.values(), self._writer)
        problems = {**ledger.problems, **unwritable}
        stored = [tensor for name in problems for tensor in _stored_as(name, ledger)]
        passed = [tensor for tensor in stored if not _is_only_told_of(tensor)]
        left = [Dropped(t.name, _ONLY_TOLD_OF) for t in stored if _is_only_told_of(t)]
        if not request.allow_unknown:
            passed, left = [], []
        self._twice = [name for name in ledger.problems if name in ledger.weights]
        weights = [w for name, w in ledger.weights.items() if name not in unwritable]
        self.account = Account(
            n_in=len(ledger.stored),
            n_bytes_in=sum([tensor.n_bytes for tensor in ledger.stored.values()])
            - sum(ledger.stored[d.name].n_bytes for d in ledger.dropped if d.reason == ASKED),
            n_parameters=sum([weight.n_elements for weight in ledger.weights.values()]),
            dropped=[
                *ledger.dropped,
                *left,
                *left_behind(checkpoint.shards.values(), self._writer.id),
                *checkpoint.left_out,
            ],
            passed=tuple(tensor.name for tensor in passed),
            edited=tuple(w.name for w in weights if isinstance(w, Edited)),
            n_bytes_edited=_n_bytes_edited(weights, request.threads),
            problems=problems,
        )
        self.mixing = _mixing(request, checkpoint, ledger, weights)
        if self.mixing is not None:
            request = replace(request, numbered=self.mixing.names)
            weights = [weight for weight in weights if weight.name in self.mixing.names]
            self.account.dropped += self.mixing.dropped
        self.request = request
        self._is_file = checkpoint.root is None
        self._config = checkpoint.config
        self.kept = Kept(ledger)
        self._repacked_as: dict[str, tuple[Encoding, ...]] = {}  # any of these says it
        self._experts = Experts(ledger.facts, self.account)
        self._asked = Asked(request, self._experts.names_beside)
        if self.mixing is not None:
            self._asked.follow(self.mixing)
        self._moves = Moves(self._asked, ledger.stored)
        turns = any(encoding.layout.conv1d != "as stored" for encoding in self._asked.encodings)
        if turns and not checkpoint.self_contained:
            self._asked.conv1d = conv1d_layers(ledger)
        weights = self._arranged(weights)
        self._asked.check_patterns([*ledger.weights, *self._experts.stack_of])
        self._n_weights = len(weights)
        if self.mixing is not None:
            place = self.mixing.place
            weights.sort(key=lambda weight: place(weight.name))
        elif self._writer.id != "safetensors":  # which sorts its tensors anyway
            places = {name: i for i, name in enumerate(ledger.stored)}
            if all(weight.parts[0].name in places for weight in weights):  # else of other names
                weights.sort(key=lambda weight: places[weight.parts[0].name])
        self._choose(weights, passed, has_config=checkpoint.has_config)
        if request.rename:
            request.check_renaming([made.weight.name for made in self.weights])
            self._check_new_names(ledger.stored)

    def _check_new_names(self, stored: dict[str, StoredTensor]) -> None:
        """Refuse to call a plain weight what would be read as a part of a quantised one."""
        if self._writer.self_contained:
            return
        plain = {made.name: made for made in self.weights if made.is_plain}
        parts = {
            name: made.weight.parts[0]._replace(name=name, dtype=made.parts[0].dtype)
            for name, made in plain.items()
        }
        for name, made in plain.items():
            was = is_auxiliary(made.weight.parts[0], stored)
            if name != made.weight.name and not was and is_auxiliary(parts[name], parts):
                raise UnsupportedError(
                    f"{made.weight.name!r} cannot be called {name!r}, which is read as a part of a"
                    " quantised weight; give it another name"
                )

    def _arranged(self, weights: list[Weight]) -> list[Weight]:
        """Return the weights with experts as is asked, or as tools do; find which are moved."""
        experts, asked, moves, request = self._experts, self._asked, self._moves, self.request
        if request.experts is not None:
            weights = experts.as_asked(weights, asked, self._writer)
        asked.hear(weights, self._config)
        tools = [] if request.experts else [e.layout.experts_tool for e in asked.encodings]
        tool = next((tool for tool in tools if tool is not None), None)
        if tool is not None:
            weights = experts.taken_apart(weights, tool, asked)
        is_plain = not (asked.encodings or request.overrides or self.account.problems)
        if is_plain and request.experts is None and not self._writer.self_contained:
            weights = experts.put_together(weights, asked)
        moves.find(weights)
        whole = len(weights)
        if tool is not None:
            weights = experts.codes_taken_apart(weights, tool, asked, moves.repacks)
        if len(weights) > whole:
            moves.find(weights)
        return weights

    # --- weights -------------------------------------------------------------------------------

    def _choose(
        self, weights: list[Weight], passed: list[StoredTensor], *, has_config: bool
    ) -> None:
        """Find what all is written as.

        Where no config would tell codes that are moved from what is encoded beside them, plain
        weights stay plain; if that is not enough, no such codes are moved.
        """
        account = self.account
        self._write_all(account.copy(), weights, passed)
        beside = self._moves.beside_what_is_asked(weights)
        why = self._why_untold(has_config=has_config) if beside else None
        if why is None:
            return
        left = self._asked.left
        encoded = (made.weight for made in self.weights if not made.is_plain)
        plain = [weight.name for weight in encoded if weight.own_dtype is not None]
        self._asked.left = {**left, **dict.fromkeys(plain, why)}
        self._write_all(account.copy(), weights, passed)
        if self._why_untold(has_config=has_config) is None:
            return
        self._asked.left = left
        self._moves.give_up(beside, why)
        self._write_all(account, weights, passed)

    def _write_all(
        self, account: Account, weights: list[Weight], passed: list[StoredTensor]
    ) -> None:
        """Say what all becomes, and what is kept or passes; counted from an account on."""
        self.account, self._experts.account = account, account
        self.kept = Kept(self._ledger)
        self._repacked_as = {}
        self.__dict__.pop("declaration", None)
        self.weights = [made for weight in weights for made in self._written(weight)]
        self.weights += [self._as_it_is(tensor) for tensor in passed]
        self.weights += self._kept_beside()

    def _why_untold(self, *, has_config: bool) -> str | None:
        """Return why the output cannot say what it is in; None if it can."""
        try:
            if self.request.form.becomes_file(directory=not self._is_file):
                self.declaration.settings()
            elif has_config:
                self.declaration.sections()
        except UnsupportedError as error:
            return error.message
        return None

    def _written(self, weight: Weight) -> Iterator[OutputWeight]:
        """Yield what a weight becomes: one weight, but for the parts of one that is kept."""
        request = self.request
        override = self._asked.override(weight)
        if override is not None:
            yield from self._overridden(weight, *override)
            return
        encoding = self._asked.others.get(weight.name, request.encoding)
        if encoding is not None:
            repack = self._moves.repacks.get(weight.name)
            if repack is not None:
                yield from self._repacked(weight, repack)
                return
            encoding = self._asked.fitted(weight, encoding)
            why = self._asked.why_plain(weight, encoding)
            if why is None:
                if request.encoding is not None and isinstance(encoding, PlainEncoding):
                    self.account.plain[weight.name] = self._asked.why_values(weight)
                yield from self._encoded(weight, encoding)
                return
            if weight.name in self._moves.unmovable:
                why = f"{self._moves.unmovable[weight.name].why}; {why}"
            self.account.plain[weight.name] = why
        if request.keep_blocks and self._is_held_as_stored(weight):
            self.account.kept[weight.name] = weight.parts[0].dtype.name
            yield from self._kept(weight)
            return
        yield self._output(weight, plain_encoding(self._dtype_of(weight)))

    def _dtype_of(self, weight: Weight) -> DType:
        """Return what a weight is written as that is not encoded."""
        own = weight.own_dtype
        asked = self._writer.floats(weight.shape, self.request.dtype)
        dtype = plain_dtype(weight, asked, cast=self.request.cast_all)
        if own is not None and own is not dtype:
            self.account.cast[weight.name] = (own.name, dtype.name)
        if dtype is not own and not (own is None or _holds_all(own, dtype)):
            self._refuse_loss(weight.name, f"it would be rounded from {own} to {dtype}")
        if own is None and dtype.name != "F32":
            self._refuse_loss(weight.name, f"it would be decoded, and rounded to {dtype}")
        return dtype

    def _overridden(
        self, weight: Weight, pattern: str, encoding: Encoding | None
    ) -> Iterator[OutputWeight]:
        is_plain = (
            weight.own_dtype is not None
            if encoding is None
            else isinstance(encoding, PlainEncoding)
        )
        if self.request.encoding is not None and is_plain:
            self.account.plain[weight.name] = _OVERRIDDEN
        if encoding is None:
            yield from self._kept_whole(weight)
            return
        repack = self._moves.repacks.get(weight.name)
        if repack is not None:
            yield from self._repacked(weight, repack)
            return
        encoding = self._asked.fitted(weight, encoding)
        why = self._asked.why_unfit(weight, encoding)
        if why is not None:
            raise UnsupportedError(
                f"{weight.name!r} cannot be written as {encoding.id}, which the override"
                f" {pattern!r} asks for: {why}"
            )
        yield from self._encoded(weight, encoding)

    def _encoded(self, weight: Weight, encoding: Encoding) -> Iterator[OutputWeight]:
        made = self._output(self._asked.turned(weight, encoding), encoding)
        if self._is_held_as_stored(weight) and made.parts[0].dtype is weight.parts[0].dtype:
            yield from self._kept(weight)  # it is written so already
        else:
            is_of_codes = weight.own_dtype is None and not _is_replaced(weight)
            if is_of_codes and not made.is_plain:
                self.account.requantised[weight.name] = weight.scheme
                if weight.name in self._moves.unmovable:
                    self.account.unmovable[weight.name] = self._moves.unmovable[weight.name].why
            if not made.is_plain:
                self._check_lossless(weight, encoding.id)
            yield made

    def _is_held_as_stored(self, weight: Weight) -> bool:
        """Tell whether the format stores the very blocks that a weight is in."""
        dtype = weight.parts[0].dtype
        return dtype.kind == "block" and all(self._writer.holds(p.dtype) for p in weight.parts)

    def _kept_whole(self, weight: Weight) -> Iterator[OutputWeight]:
        """Yield all that a weight is stored as, byte for byte; of a piece of a stack its values."""
        stack = self._experts.stack_of.get(weight.name)
        if isinstance(weight, Edited):
            raise UnsupportedError(
                f"{weight.name!r} cannot be edited and kept as it is stored: leave out one of them"
            )
        if stack is None:
            for stored in self.kept.add(weight):
                yield self._same(stored)
        elif weight.own_dtype is not None:
            yield self._output(weight, plain_encoding(weight.own_dtype))
        else:
            raise UnsupportedError(
                f"{weight.name!r} cannot be kept as it is stored: it is a piece of {stack!r}; keep"
                " that, or none of it"
            )

    def _kept_beside(self) -> list[OutputWeight]:
        """Return what is dropped with weights that are decoded, and stays with those kept."""
        beside = self.kept.beside()
        kept = {id(dropped) for _, dropped in beside}
        self.account.dropped = [d for d in self.account.dropped if id(d) not in kept]
        return [self._same(stored) for stored, _ in beside]

    def _kept(self, weight: Weight) -> Iterator[OutputWeight]:
        """Yield the blocks that a weight is stored in."""
        for stored in weight.parts:
            yield self._same(stored)

    def _same(self, stored: StoredTensor) -> OutputWeight:
        """Return a stored tensor as it is."""
        same = Plain(stored.name, stored.shape, (stored,))
        return self._output(same, plain_encoding(stored.dtype))

    def _repacked(self, weight: Weight, repack: Repack) -> Iterator[OutputWeight]:
        """Yield what a weight's own codes are stored as in another layout."""
        encoding = repack.encodings[0]
        self._repacked_as[weight.name] = repack.encodings
        self.account.repacked[weight.name] = encoding.id
        if not repack.is_exact:
            self.account.inexact.append(weight.name)
            self._refuse_loss(weight.name, "only BF16 and F16 would come out equal, and not F32")
        if repack.is_cast:
            self.account.recast.append(weight.name)
        elif self._moves.is_as_stored(weight, repack):
            self.account.unchanged.append(weight.name)
        way = f"{weight.id} as {encoding.id}"
        for stored in repack.parts:
            moved = Moved(stored.name, stored.shape, (stored,), way)
            yield self._output(moved, plain_encoding(stored.dtype))

    def _check_lossless(self, weight: Weight, encoding: str) -> None:
        """Refuse to quantise, where nothing may be lost."""
        anew = "" if weight.own_dtype is not None else f" anew: {weight.scheme} is not moved there"
        self._refuse_loss(weight.name, f"it would be quantised as {encoding}{anew}")

    def _refuse_loss(self, name: str, why: str) -> None:
        """Refuse what would change values, where nothing may be lost."""
        if self.request.lossless:
            unmovable = self._moves.unmovable.get(name)
            raise unmovable or UnsupportedError(f"{name!r}: {why}", remedy=_MAY_LOSE)

    def _as_it_is(self, tensor: StoredTensor) -> OutputWeight:
        """Return a tensor that passes; as its bytes, if the format has those but no such dtype."""
        if not self._writer.holds(tensor.dtype) and self._writer.holds(DTYPES["U8"]):
            tensor = tensor._replace(dtype=DTYPES["U8"], shape=(tensor.n_bytes,))
        return self._output(
            Plain(tensor.name, tensor.shape, (tensor,)), plain_encoding(tensor.dtype)
        )

    def _output(self, weight: Weight, encoding: Encoding) -> OutputWeight:
        """Return a weight as it is written; refuse what the format does not hold."""
        target = encoding.dtype if isinstance(encoding, PlainEncoding) else encoding.values
        weight = by_math(weight, self.request.math, target)
        made = OutputWeight(weight, encoding, self.request.renamed(weight.name))
        for part in made.parts:
            why = self._writer.refuses(part)
            if why is not None:
                raise UnsupportedError(
                    f"{weight.parts[0].source.name}: tensor {part.name!r} cannot be written: {why}",
                    remedy=None if self._writer.holds(part.dtype) else another_format(part.dtype),
                )
        return made

    # --- all together --------------------------------------------------------------------------

    @property
    def dense(self) -> bool:
        """Whether nothing that is written is quantised as the source describes it."""
        return not self.account.problems and not self.kept.codes

    @property
    def decoded(self) -> list[OutputWeight]:
        """The weights that are quantised in the source, and written as values."""
        return [
            made
            for made in self.weights
            if made.is_plain and (made.weight.own_dtype is None or len(made.weight.parts) > 1)
        ]

    @property
    def encoded(self) -> list[str]:
        """The source's names of those that are quantised in the output as nothing of it was."""
        made = [made.weight.name for made in self.weights if not made.is_plain]
        return [*made, *self._repacked_as]

    def check_kept(self, config: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
        """Refuse codes that are kept, and would be read as something else."""
        if not self.kept.codes:
            return
        writer = self._writer

        def facts() -> QuantFacts:
            said = QuantFacts() if writer.self_contained else read_facts(config, metadata)
            facts = self._ledger.facts
            tiles = facts.tiles if writer.id == "safetensors" else False
            return said.given(None, facts.conv1d, tiles, folds=facts.folds)

        self.kept.check(
            facts,
            self.request.renamed,
            self.account.passed,
            self_contained=writer.self_contained,
            remedy=_DECODE if self._is_file else _DIRECTORY,
        )

    @cached_property
    def declaration(self) -> Declaration:
        """What the output says of the encodings of its weights."""
        return Declaration(
            self.weights,
            self._repacked_as,
            self._asked.others,
            self.request,
            self._writer,
            self._config,
            is_dense=self.dense,
        )

    def check(self) -> None:
        """Refuse what may not pass."""
        request = self.request
        if self.account.problems and not request.allow_unknown:
            raise first_of(self.account.problems)
        if self._lone_part is not None and not request.allow_unknown:
            raise UnsupportedError(self._lone_part)
        for name in self._twice:
            raise UnsupportedError(f"a weight and a tensor that is passed on are {name!r}")
        encoding = request.encoding
        unfit = [why for why in self.account.plain.values() if why != _OVERRIDDEN]
        if encoding is not None and len(unfit) == self._n_weights:
            reasons = "; ".join(dict.fromkeys(unfit)) or "there is none"
            raise UnsupportedError(
                f"no weight of the model suits {encoding.id}: {reasons}",
                remedy=_who_quantises(encoding),
            )


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


def _mixing(
    request: Request, checkpoint: Checkpoint, ledger: Ledger, weights: list[Weight]
) -> Mixing | None:
    """Return what a mix makes of a model."""
    if request.mix is None:
        return None
    from anamnesis.convert.plan.mixing import Mixing  # only here, for the sake of a quick start
    from anamnesis.formats.gguf.values import untyped

    of_gguf = (c.metadata for c in checkpoint.shards.values() if c.id == "gguf")
    metadata = untyped(next(of_gguf, {}))
    return Mixing(request.mix, request, weights, ledger.stored, metadata)


def _n_bytes_edited(weights: list[Weight], threads: int) -> int:
    """Return what functions make in float32 that is in memory at once: of one weight, or two."""
    made = [4 * w.n_elements for w in weights if isinstance(w, Edited) and w.is_made]
    return sum(sorted(made)[-min(2, threads) :])


def _holds_all(own: DType, dtype: DType) -> bool:
    """Tell whether a dtype has all values of another one."""
    return dtype.name == "F64" or (dtype.name == "F32" and own.bits <= 16)


def _is_replaced(weight: Weight) -> bool:
    """Tell whether an array takes the place of a weight's values, so that none is out of codes."""
    return isinstance(weight, Edited) and not weight.is_made


def _who_quantises(encoding: Encoding) -> str | None:
    """Return what to do where an encoding that only moves codes finds none."""
    if encoding.codes is not None:
        return None
    from anamnesis.convert.loaders.absent import absent, who_quantises

    return absent(encoding.id) or f"it quantises nothing; {who_quantises(encoding.id)}"


def _stored_as(name: str, ledger: Ledger) -> tuple[StoredTensor, ...]:
    """Return the stored tensor of a name, or those that a weight of that name is made of."""
    stored = ledger.stored.get(name)
    return ledger.weights[name].parts if stored is None else (stored,)


def _is_only_told_of(tensor: StoredTensor) -> bool:
    """Tell whether a stored tensor that nobody can decode has no bytes of its own either.

    So it is with torch's sparse and quantised tensors, which are made of others.
    """
    return tensor.dtype.name not in DTYPES and not tensor.n_bytes
