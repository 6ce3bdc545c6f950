"""What becomes of a model: one value for each weight, decided in four stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.stored import Dropped, StoredTensor
from anamnesis.convert.decide.decided import Decided
from anamnesis.convert.decide.names import Named, as_asked, codes_apart, put_together, taken_apart
from anamnesis.convert.decide.possible import Fate, Possible, moves_of
from anamnesis.convert.decide.seen import Seen
from anamnesis.convert.decide.wish import NOTHING, Asked, Wish
from anamnesis.convert.report.problems import unwritable_weights
from anamnesis.convert.request.request import Request
from anamnesis.schemes.core.layout import unmovable
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.orientation import conv1d_layers

_WITHOUT_BYTES = "unreadable, without bytes to pass on"


def decide(seen: Seen) -> Decided:
    """Return what becomes of a model: names, wishes, what is possible, what a config can say."""
    ledger, request = seen.ledger, _of_mix(seen)
    writer = request.writer()
    unwritable = unwritable_weights(ledger.weights.values(), writer)
    problems = {**ledger.problems, **unwritable}
    weights = {name: w for name, w in ledger.weights.items() if name not in unwritable}
    # names
    asked = _asked(request, seen, weights)
    named = Named(list(weights.values()) if asked.mix is None else asked.mix.weights)
    named, asked = _with_experts(named, asked, seen, may_join=not problems)
    # wishes, and whose codes they move; stacks come apart where they are not moved whole
    wishes = _wishes(named, asked)
    moves = moves_of(named.weights, wishes)
    apart = codes_apart(named, asked, ledger, moves)
    if apart is not named:
        named, wishes = apart, _wishes(apart, asked)
        moves = moves_of(named.weights, wishes)
    asked.check_patterns([*ledger.weights, *named.stack_of])
    # what is possible
    possible = Possible(asked, asked.request, writer, ledger.stored, named.stack_of)
    fates = [
        possible.fate(weight, wish, moves.get(weight.name))
        for weight, wish in _in_order(named.weights, wishes, asked, ledger.stored)
    ]
    unread: list[StoredTensor] = []  # of problems, or what weights of such names are made of
    for name in problems if request.allow_unknown else ():
        unread += (ledger.stored[name],) if name in ledger.stored else ledger.weights[name].parts
    fates += [possible.passed(tensor) for tensor in unread if _has_bytes(tensor)]
    left = [Dropped(tensor.name, _WITHOUT_BYTES) for tensor in unread if not _has_bytes(tensor)]
    # what a config can say
    decided = _declarable(Decided(seen, asked, writer, named, problems, fates, left), possible)
    decided.check_names()
    return decided


def _of_mix(seen: Seen) -> Request:
    """Return what a request for a mix means of a model: one of plain values is of GGUF files."""
    request, mix = seen.spelt(seen.request), seen.request.mix
    if mix is None:
        return request
    if request.encoding is None and not seen.checkpoint.self_contained:
        return replace(request, mix=None)
    from anamnesis.schemes.families.ggml.mixes import COPY

    keeps = request.encoding is not None or mix.name == COPY
    return replace(request, keep_blocks=keeps, cast_all=False)


def _asked(request: Request, seen: Seen, weights: Mapping[str, Weight]) -> Asked:
    """Return what is asked for, with what a mix makes of the model or which layers are Conv1D."""
    checkpoint, ledger = seen.checkpoint, seen.ledger
    if request.mix is None:
        asked = Asked(request)
        turns = any(encoding.layout.conv1d != "as stored" for encoding in asked.encodings)
        has_conv1d = turns and not checkpoint.self_contained
        return replace(asked, conv1d=conv1d_layers(ledger)) if has_conv1d else asked
    from anamnesis.convert.decide.mix import mix_of
    from anamnesis.formats.gguf.values import untyped

    of_gguf = (c.metadata for c in checkpoint.shards.values() if c.id == "gguf")
    mix = mix_of(request.mix, request, weights, ledger.stored, untyped(next(of_gguf, {})))
    typed = mix.types.items()
    return Asked(
        replace(request, numbered=mix.names if mix.dropped else {}),
        mix,
        {name: one.why for name, one in typed if one.encoding is None},
        {name: one.encoding for name, one in typed if one.encoding is not None},
    )


def _with_experts(named: Named, asked: Asked, seen: Seen, *, may_join: bool) -> tuple[Named, Asked]:
    """Return the weights with experts as is asked, or as tools do, and what the tool does else."""
    weights, ledger, container = named.weights, seen.ledger, asked.request.writer()
    if asked.request.experts is not None:
        named = as_asked(weights, asked, ledger, container.id)
    asked = asked.by_tool(named.weights, seen.checkpoint.config)
    if asked.experts_tool is not None:
        return taken_apart(named, asked, ledger)[0], asked
    is_plain = may_join and not (asked.encodings or asked.request.overrides)
    if is_plain and asked.request.experts is None and not container.self_contained:
        named = put_together(weights, asked, ledger)
    return named, asked


def _wishes(named: Named, asked: Asked) -> list[Wish]:
    if not (asked.encodings or asked.request.overrides or asked.others):
        return [NOTHING] * len(named.weights)
    asked = replace(asked, left={**asked.left, **named.left}) if named.left else asked
    also = named.aliases.get
    return [asked.wish(weight, also(weight.name)) for weight in named.weights]


def _in_order(
    weights: list[Weight], wishes: list[Wish], asked: Asked, stored: Mapping[str, StoredTensor]
) -> Iterable[tuple[Weight, Wish]]:
    """Return weights as they are stored; safetensors sort theirs anyway, and a mix has sorted."""
    each = zip(weights, wishes, strict=True)
    if asked.mix is not None or asked.request.form.container == "safetensors":
        return each
    places = {name: i for i, name in enumerate(stored)}
    if not {weight.parts[0].name for weight in weights} <= places.keys():  # of other names
        return each
    return sorted(each, key=lambda one: places[one[0].parts[0].name])


def _declarable(decided: Decided, possible: Possible) -> Decided:
    """Return it with what no config would tell from moved codes left plain, or nothing moved."""
    # Plain weights stay plain beside codes in settings of their own; if that is not enough, no such
    # codes are moved.
    why = decided.why_undeclared if any(fate.is_beside for fate in decided.fates) else None
    if why is None:
        return decided

    each = [
        possible.fate(fate.weight, fate.wish._replace(refused=why), fate.move)
        if fate.kind == "quantised" and fate.wish.pattern is None
        else fate
        for fate in decided.fates
    ]
    plainer = replace(decided, fates=each)
    if plainer.why_undeclared is None:
        return plainer

    def unmoved(fate: Fate) -> Fate:
        weight = fate.weight
        error = unmovable(weight.parts[0], weight.name, weight.shape, why)
        return possible.fate(weight, fate.wish, error)

    each = [unmoved(fate) if fate.is_beside else fate for fate in decided.fates]
    return replace(decided, fates=each)


def _has_bytes(tensor: StoredTensor) -> bool:
    # torch's sparse and quantised tensors have none, for they are made of others.
    return tensor.dtype.name in DTYPES or tensor.n_bytes > 0
