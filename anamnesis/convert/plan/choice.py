"""What each weight of a model is written as, and what becomes of the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from anamnesis.base.dropped import ASKED, Dropped
from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.patterns import unfitting
from anamnesis.base.stored import StoredTensor
from anamnesis.checkpoint.metadata import left_behind
from anamnesis.checkpoint.open import Checkpoint
from anamnesis.convert.ask.request import Request
from anamnesis.convert.plan.account import Account
from anamnesis.convert.plan.declaration import Declaration
from anamnesis.convert.plan.experts import Experts, not_put_together
from anamnesis.convert.plan.files import OutputWeight
from anamnesis.convert.plan.keeping import Kept
from anamnesis.convert.tell.problems import another_format, first_of, unwritable_weights
from anamnesis.formats.base import Writer
from anamnesis.formats.writers import WRITERS
from anamnesis.schemes.claim.facts import QuantFacts, read_facts
from anamnesis.schemes.claim.ledger import Ledger
from anamnesis.schemes.claim.names import is_auxiliary
from anamnesis.schemes.claim.orientation import as_linear, conv1d_layers
from anamnesis.schemes.core.edited import Edited
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.layout import ExpertsTool, Repack, Unmovable, unmovable
from anamnesis.schemes.core.plain import Moved, Plain, plain_dtype
from anamnesis.schemes.core.plain_encoding import PlainEncoding, plain_encoding
from anamnesis.schemes.core.rounding import by_math
from anamnesis.schemes.core.weight import Weight

__all__ = ["Choice"]

_ONLY_TOLD_OF = "unreadable, without bytes to pass on"
_EXCLUDED = "excluded"
_OVERRIDDEN = "as an override asks"
_NO_FLOATS = "no floats"
_CONV1D = "Conv1D"
_MAY_BE_CONV1D = "Conv1D or nn.Linear; conv1d=True or conv1d=False says which"
_WEIGHT = ".weight"
_SHORT = 1 << 20  # bytes of what a layout makes anew: shapes, second scales, markers, orders
_MAY_LOSE = "exclude it, or leave out lossless=True"
_DECODE = "decode it instead"
_DIRECTORY = "write a directory of safetensors, which has a config that says so, or decode it"


class Choice:
    """The weights to be written, in the order of the model, and the account of all others.

    Tensors with problems are passed on as they are if the request allows that, else left out.

    Attributes
    ----------
    weights : list of OutputWeight
    account : Account

    Raises
    ------
    UnsupportedError
        If a weight is to be written as it cannot be.
    ValueError
        If a pattern of the request fits no weight.
    """

    def __init__(self, checkpoint: Checkpoint, ledger: Ledger, request: Request) -> None:
        self._request = request
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
                *_metadata_left(checkpoint, self._writer),
                *checkpoint.left_out,
            ],
            passed=tuple(tensor.name for tensor in passed),
            edited=tuple(w.name for w in weights if isinstance(w, Edited)),
            n_bytes_edited=_n_bytes_edited(weights, request.threads),
            problems=problems,
        )
        self._is_file = checkpoint.root is None
        self._config = checkpoint.config
        self.kept = Kept(ledger)
        self._left: Mapping[str, str] = {}
        self._others: Mapping[str, Encoding] = {}
        self._repacks: dict[str, Repack] = {}
        self._unmovable: dict[str, Unmovable] = {}
        self._fits: dict[tuple[int, str], tuple[Encoding, Encoding]] = {}  # asked for, and fitted
        self._repacked_as: dict[str, tuple[Encoding, ...]] = {}  # any of these says it
        self._experts = Experts(ledger.facts, self.account)
        self._conv1d: Mapping[str, bool | None] = {}
        given = [request.encoding, *(encoding for _, encoding in request.overrides)]
        asked = [encoding for encoding in given if encoding is not None]
        turns = any(encoding.layout.conv1d != "as stored" for encoding in asked)
        if turns and not checkpoint.self_contained:
            self._conv1d = conv1d_layers(ledger)
        if request.experts is not None:
            weights = self._arranged(weights)
        if request.encoding is not None:
            shapes = {weight.name: weight.shape for weight in weights}
            self._left = request.encoding.layout.leaves(shapes, checkpoint.config)
            self._others = _encodings_of(request.encoding.layout.others(shapes, checkpoint.config))
        is_usual = request.experts is None
        tools = [e.layout.experts_tool for e in asked if is_usual]
        tool = next((tool for tool in tools if tool is not None), None)
        if tool is not None:
            weights = self._experts.taken_apart(weights, tool, self._why_whole)
            self._left = {**self._left, **self._experts.left}
        is_plain = not (asked or request.overrides or problems or self._writer.self_contained)
        if is_plain and is_usual:
            weights = self._experts.put_together(weights, self._dtype_written)
        self._find_repacks(weights)
        if tool is not None:
            weights = self._codes_apart(weights, tool)
        _check_patterns(request, [*ledger.weights, *self._experts.stack_of])
        self._n_weights = len(weights)
        if self._writer.id != "safetensors":  # which sorts its tensors anyway
            places = {name: i for i, name in enumerate(ledger.stored)}
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

    # --- experts -------------------------------------------------------------------------------

    def _arranged(self, weights: list[Weight]) -> list[Weight]:
        """Return the weights with experts as is asked: stacked, split, or as they are.

        Raises
        ------
        UnsupportedError
            If some cannot be, or would not be encoded for that.
        """
        experts, request = self._experts, self._request
        if request.experts == "keep":
            return weights
        given = weights
        if request.experts == "split":
            weights = experts.all_taken_apart(weights)
        else:
            holds = None if request.encoding is None else request.encoding.layout.stacks_of
            names = holds or "transformers"
            in_codes = request.encoding is not None or bool(request.overrides)
            weights = experts.all_put_together(
                weights, self._dtype_written, names, in_codes=in_codes
            )
            self._check_put_together({weight.name: weight for weight in given})
        experts.check_container(given, self._writer, is_split=request.experts == "split")
        return weights

    def _codes_apart(self, weights: list[Weight], tool: ExpertsTool) -> list[Weight]:
        """Return the weights with stacks in codes as matrices, where these are encoded anew.

        That is so if one of the stacks can be neither moved nor cast as it is.
        """
        experts = self._experts
        left = {name: why for name, why in self._left.items() if name not in experts.left}
        whole, self._left = len(weights), left
        weights = experts.codes_taken_apart(weights, tool, self._why_whole, self._repacks)
        self._left = {**left, **experts.left}
        if len(weights) > whole:
            self._repacks.clear()
            self._unmovable.clear()
            self._find_repacks(weights)
        return weights

    def _check_put_together(self, weights: Mapping[str, Weight]) -> None:
        """Refuse stacks that the encoding does not hold, or whose pieces are asked for apart."""
        encoding = self._request.encoding
        for stack, names in self._experts.pieces_of.items():
            pieces = [weights[name] for name in names]
            ways = {(self._wants(piece), self._override(piece)) for piece in pieces}
            if len(ways) > 1:
                raise not_put_together(stack, "its pieces are asked for in different ways")
            wanted, override = ways.pop()
            asked = override[1] if override else encoding if wanted else None
            if asked is not None and any(self._is_only_single(p, asked) for p in pieces):
                raise not_put_together(stack, f"{asked.id} has no stacks of experts")
            if override and override[1] is None:
                raise not_put_together(stack, "its pieces are to be kept as they are stored")

    def _is_only_single(self, weight: Weight, encoding: Encoding) -> bool:
        """Tell whether an encoding takes a matrix, and not a stack of its like."""
        has_stacks = encoding.layout.stacks_of is not None or isinstance(encoding, PlainEncoding)
        return not has_stacks and self._why_unfit(weight, self._fitted(weight, encoding)) is None

    def _why_whole(self, weight: Weight) -> str | None:
        """Return why a matrix is no reason to take its stack apart; None if it is one."""
        override = self._override(weight)
        encoding = self._request.encoding if override is None else override[1]
        if encoding is None or encoding.layout.experts_tool is None:
            return "a stack of experts"
        if override is not None:
            return None
        return self._why_plain(weight, self._fitted(weight, encoding))

    def _dtype_written(self, weight: Weight) -> DType:
        """Return what a matrix is written as that becomes a piece of a stack."""
        return plain_dtype(weight, self._request.dtype, cast=self._request.cast_all)

    def _override(self, weight: Weight) -> tuple[str, Encoding | None] | None:
        """Return the first override that fits the name of a weight or of its stack."""
        return self._request.override(*self._names(weight)) if self._request.overrides else None

    def _wants(self, weight: Weight) -> bool:
        return self._request.wants(*self._names(weight))

    def _names(self, weight: Weight) -> tuple[str, ...]:
        return (weight.name, *self._experts.names_beside(weight.name))

    # --- weights -------------------------------------------------------------------------------

    def _find_repacks(self, weights: list[Weight]) -> None:
        """Find what is moved, not decoded; an encoding is asked of all its weights at once.

        Raises
        ------
        Unmovable
            If codes cannot be moved, and the encoding encodes nothing.
        """
        if self._request.encoding is None and not self._request.overrides:
            return
        asked: dict[str, tuple[Encoding, list[Weight]]] = {}
        for weight in weights:
            for encoding in self._asked_of(weight):
                asked.setdefault(encoding.id, (encoding, []))[1].append(weight)
        for encoding, some in asked.values():
            for name, found in encoding.repacks(some).items():
                if isinstance(found, Repack):
                    self._repacks[name] = found
                elif encoding.codes is None and not found.is_cast:
                    raise found
                else:
                    self._unmovable[name] = found

    def _choose(
        self, weights: list[Weight], passed: list[StoredTensor], *, has_config: bool
    ) -> None:
        """Find what all is written as.

        Where no config would tell codes that are moved from what is encoded beside them, plain
        weights stay plain; if that is not enough, no such codes are moved.
        """
        account = self.account
        self._write_all(account.copy(), weights, passed)
        beside = [weight for weight in weights if self._is_beside_what_is_asked(weight)]
        why = self._why_untold(has_config=has_config) if beside else None
        if why is None:
            return
        left = self._left
        encoded = (made.weight for made in self.weights if not made.is_plain)
        plain = [weight.name for weight in encoded if weight.own_dtype is not None]
        self._left = {**left, **dict.fromkeys(plain, why)}
        self._write_all(account.copy(), weights, passed)
        if self._why_untold(has_config=has_config) is None:
            return
        self._left = left
        for weight in beside:
            del self._repacks[weight.name]
            codes = weight.parts[0]
            self._unmovable[weight.name] = unmovable(codes, weight.name, weight.shape, why)
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

    def _is_beside_what_is_asked(self, weight: Weight) -> bool:
        """Tell whether codes are moved that are in groups of their own, and could be others."""
        repack = self._repacks.get(weight.name)
        asked = self._asked_of(weight) if repack is not None else []
        if repack is None or any(e.id == way.id for e in repack.encodings for way in asked):
            return False
        return asked[0].codes is not None

    def _why_untold(self, *, has_config: bool) -> str | None:
        """Return why the output cannot say what it is in; None if it can."""
        try:
            if self._request.form.becomes_file(directory=not self._is_file):
                self.declaration.settings()
            elif has_config:
                self.declaration.sections()
        except UnsupportedError as error:
            return error.message
        return None

    def _asked_of(self, weight: Weight) -> list[Encoding]:
        """Return the encodings whose codes a weight may have already, the one of its own last."""
        override = self._override(weight)
        if override is not None:
            ways = [override[1]]
        elif self._wants(weight):
            both = (self._request.encoding, self._others.get(weight.name))
            is_left = weight.name in self._left
            ways = [
                way for way in both if way is not None and (way.layout.moves_left or not is_left)
            ]
        else:
            ways = []
        return [way for way in ways if way is not None]

    def _written(self, weight: Weight) -> Iterator[OutputWeight]:
        """Yield what a weight becomes: one weight, but for the parts of one that is kept."""
        request = self._request
        override = self._override(weight)
        if override is not None:
            yield from self._overridden(weight, *override)
            return
        encoding = self._others.get(weight.name, request.encoding)
        if encoding is not None:
            repack = self._repacks.get(weight.name)
            if repack is not None:
                yield from self._repacked(weight, repack)
                return
            encoding = self._fitted(weight, encoding)
            why = self._why_plain(weight, encoding)
            if why is None:
                yield from self._encoded(weight, encoding)
                return
            if weight.name in self._unmovable:
                why = f"{self._unmovable[weight.name].why}; {why}"
            self.account.plain[weight.name] = why
        if request.keep_blocks and self._is_held_as_stored(weight):
            self.account.kept[weight.name] = weight.parts[0].dtype.name
            yield from self._kept(weight)
            return
        yield self._output(weight, plain_encoding(self._dtype_of(weight)))

    def _dtype_of(self, weight: Weight) -> DType:
        """Return what a weight is written as that is not encoded."""
        own = weight.own_dtype
        asked = self._writer.floats(weight.shape, self._request.dtype)
        dtype = plain_dtype(weight, asked, cast=self._request.cast_all)
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
        if self._request.encoding is not None and is_plain:
            self.account.plain[weight.name] = _OVERRIDDEN
        if encoding is None:
            yield from self._kept_whole(weight)
            return
        repack = self._repacks.get(weight.name)
        if repack is not None:
            yield from self._repacked(weight, repack)
            return
        encoding = self._fitted(weight, encoding)
        why = self._why_unfit(weight, encoding)
        if why is not None:
            raise UnsupportedError(
                f"{weight.name!r} cannot be written as {encoding.id}, which the override"
                f" {pattern!r} asks for: {why}"
            )
        yield from self._encoded(weight, encoding)

    def _fitted(self, weight: Weight, encoding: Encoding) -> Encoding:
        """Return the encoding of values as they would come out plain."""
        dtype = plain_dtype(weight, self._request.dtype, cast=False)
        if dtype.kind != "float":
            return encoding
        key = id(encoding), dtype.name
        if key not in self._fits:
            self._fits[key] = encoding, encoding.fitted(dtype)
        return self._fits[key][1]

    def _encoded(self, weight: Weight, encoding: Encoding) -> Iterator[OutputWeight]:
        made = self._output(self._turned(weight, encoding), encoding)
        if self._is_held_as_stored(weight) and made.parts[0].dtype is weight.parts[0].dtype:
            yield from self._kept(weight)  # it is written so already
        else:
            is_of_codes = weight.own_dtype is None and not _is_replaced(weight)
            if is_of_codes and not made.is_plain:
                self.account.requantised[weight.name] = weight.scheme
                if weight.name in self._unmovable:
                    self.account.unmovable[weight.name] = self._unmovable[weight.name].why
            if not made.is_plain:
                self._check_lossless(weight, encoding.id)
            yield made

    def _why_plain(self, weight: Weight, encoding: Encoding) -> str | None:
        """Return why a weight is not encoded; None if it is."""
        if not self._wants(weight):
            return _EXCLUDED
        named = (self._left[name] for name in self._names(weight) if name in self._left)
        return next(named, None) or self._why_unfit(weight, encoding)

    def _why_unfit(self, weight: Weight, encoding: Encoding) -> str | None:
        """Return why an encoding does not suit a weight; None if it does."""
        dtype = weight.own_dtype or encoding.values
        if dtype.kind != "float":
            return _NO_FLOATS
        if encoding.layout.turns(weight.name, weight.shape):
            turned = as_linear(weight)
            return (
                "cannot be turned"
                if turned is None
                else encoding.refuses(weight.name, turned.shape, dtype)
            )
        if encoding.layout.conv1d == "as stored" or not self._is_conv1d(weight):
            unsure = encoding.layout.conv1d != "as stored" and self._is_conv1d(weight) is None
            why = encoding.refuses(weight.name, weight.shape, dtype)
            return why or (_MAY_BE_CONV1D if unsure else None)
        turned = as_linear(weight)
        if encoding.layout.conv1d == "left" or turned is None:
            return encoding.refuses(weight.name, weight.shape, dtype) or _CONV1D
        return encoding.refuses(weight.name, turned.shape, dtype)

    def _is_conv1d(self, weight: Weight) -> bool | None:
        return self._conv1d.get(weight.name, False)

    def _turned(self, weight: Weight, encoding: Encoding) -> Weight:
        """Return a weight with the rows and columns that the encoding takes."""
        is_turned = encoding.layout.conv1d != "as stored" and self._is_conv1d(weight)
        if not is_turned and not encoding.layout.turns(weight.name, weight.shape):
            return weight
        turned = as_linear(weight)
        assert turned is not None  # else it would have been refused
        return turned

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
        elif self._is_as_stored(weight, repack):
            self.account.unchanged.append(weight.name)
        way = f"{weight.id} as {encoding.id}"
        for stored in repack.parts:
            moved = Moved(stored.name, stored.shape, (stored,), way)
            yield self._output(moved, plain_encoding(stored.dtype))

    def _is_as_stored(self, weight: Weight, repack: Repack) -> bool:
        """Tell whether a weight is written as it is stored: the same bytes under the same names."""
        stored, names = self._ledger.stored, {part.name for part in repack.parts}
        return all(part.name in names for part in weight.parts) and all(
            _is_same(part, stored.get(part.name)) for part in repack.parts
        )

    def _check_lossless(self, weight: Weight, encoding: str) -> None:
        """Refuse to quantise, where nothing may be lost."""
        anew = "" if weight.own_dtype is not None else f" anew: {weight.scheme} is not moved there"
        self._refuse_loss(weight.name, f"it would be quantised as {encoding}{anew}")

    def _refuse_loss(self, name: str, why: str) -> None:
        """Refuse what would change values, where nothing may be lost."""
        if self._request.lossless:
            unmovable = self._unmovable.get(name)
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
        weight = by_math(weight, self._request.math, target)
        made = OutputWeight(weight, encoding, self._request.renamed(weight.name))
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
        """Refuse codes that are kept, and would be read as something else.

        Parameters
        ----------
        config, metadata : mapping
            What the output says of itself: in config.json and files beside it, and in its header.

        Raises
        ------
        UnsupportedError
        """
        if not self.kept.codes:
            return
        writer = self._writer

        def facts() -> QuantFacts:
            said = QuantFacts() if writer.self_contained else read_facts(config, metadata)
            facts = self._ledger.facts
            return said.given(None, facts.conv1d, folds=facts.folds)

        self.kept.check(
            facts,
            self._request.renamed,
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
            self._others,
            self._request,
            self._writer,
            self._config,
            is_dense=self.dense,
        )

    def check(self) -> None:
        """Refuse what may not pass.

        Raises
        ------
        UnsupportedError, ParseError
            If a stored tensor cannot be accounted for or written, the file seems to be a part of a
            model, and the request does not let it pass; or if no weight suits the encoding.
        """
        request = self._request
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


def _n_bytes_edited(weights: list[Weight], threads: int) -> int:
    """Return what functions make in float32 that is in memory at once: of one weight, or two."""
    made = [4 * w.n_elements for w in weights if isinstance(w, Edited) and w.is_made]
    return sum(sorted(made)[-min(2, threads) :])


def _holds_all(own: DType, dtype: DType) -> bool:
    """Tell whether a dtype has all values of another one."""
    return dtype.name == "F64" or (dtype.name == "F32" and own.bits <= 16)


def _is_same(part: StoredTensor, stored: StoredTensor | None) -> bool:
    """Tell whether a tensor is one that is stored: by where it lies; if it is short, by bytes."""
    if stored is None or (part.dtype.name, part.shape) != (stored.dtype.name, stored.shape):
        return False
    if part.source is stored.source and part.offset == stored.offset:
        return True
    return part.n_bytes <= _SHORT and part.read() == stored.read()


def _is_replaced(weight: Weight) -> bool:
    """Tell whether an array takes the place of a weight's values, so that none is out of codes."""
    return isinstance(weight, Edited) and not weight.is_made


def _encodings_of(names: Mapping[str, str]) -> dict[str, Encoding]:
    """Return the encodings of weights, given their names; one object for each name."""
    if not names:
        return {}
    from anamnesis.schemes.encodings import find, made  # only here, for the sake of a quick start

    rows = {name: find(name) for name in names.values()}
    ways = {name: made(row) for name, row in rows.items() if row is not None}
    return {weight: ways[name] for weight, name in names.items()}


def _who_quantises(encoding: Encoding) -> str | None:
    """Return what to do where an encoding that only moves codes finds none."""
    if encoding.codes is not None:
        return None
    from anamnesis.convert.loaders.absent import absent, who_quantises

    return absent(encoding.id) or f"it quantises nothing; {who_quantises(encoding.id)}"


def _metadata_left(checkpoint: Checkpoint, writer: Writer) -> list[Dropped]:
    """Return the metadata that the output has no place for."""
    containers = checkpoint.shards.values()
    if writer.id == "safetensors":
        return left_behind(containers)
    others = [container for container in containers if container.id != writer.id]
    why = f"metadata that {WRITERS[writer.id].title} has no place for"
    keys = dict.fromkeys(key for container in others for key in container.metadata)
    return [Dropped(key, why) for key in keys]


def _check_patterns(request: Request, names: list[str]) -> None:
    """Refuse patterns that fit no weight: they are misspelt."""
    options = {
        "include": request.include,
        "exclude": request.exclude,
        "overrides": tuple(pattern for pattern, _ in request.overrides),
    }
    for option, patterns in options.items():
        for pattern in unfitting(patterns, names):
            raise ValueError(f"{option}: no weight matches {pattern!r}")


def _stored_as(name: str, ledger: Ledger) -> tuple[StoredTensor, ...]:
    """Return the stored tensor of a name, or those that a weight of that name is made of."""
    stored = ledger.stored.get(name)
    return ledger.weights[name].parts if stored is None else (stored,)


def _is_only_told_of(tensor: StoredTensor) -> bool:
    """Tell whether a stored tensor that nobody can decode has no bytes of its own either.

    So it is with torch's sparse and quantised tensors, which are made of others.
    """
    return tensor.dtype.name not in DTYPES and not tensor.n_bytes
