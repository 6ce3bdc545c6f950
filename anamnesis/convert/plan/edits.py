"""Weights with other values: arrays, or what functions make of the old ones.

A function is called when the first band of its weight is read, and what it returns is let go when
the next one is called, once all bands have been read. So it is called once for each pass over the
weight: those are one, one more where the encoding surveys the weight first, and one to verify.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from hashlib import sha256
from operator import le
from secrets import token_hex
from typing import Any

from anamnesis.base.crc import crc32
from anamnesis.base.dtypes import DType
from anamnesis.base.lazy import np
from anamnesis.base.limits import ParseLimits, hold
from anamnesis.base.nearest import did_you_mean
from anamnesis.base.patterns import UnmatchedError, chooser, unfitting
from anamnesis.base.stored import StoredTensor
from anamnesis.checkpoint.open import stored_array
from anamnesis.convert.request.request import Request
from anamnesis.schemes.core.plain import UNROUNDED, Edited
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.sources.altered import ReplacedSource
from anamnesis.sources.memory import BufferSource

_PIECE = 1 << 20  # bytes of an array that are hashed at a time
_STEP = 256  # values, of which the first is looked at to tell whether they are read

_Make = Callable[[], StoredTensor]


def edited(
    ledger: Ledger, request: Request, limits: ParseLimits, tensor_of: Callable[[Weight], Any]
) -> Ledger:
    """Return the account of a model with the edits of a request."""
    if not request.edit:
        return ledger
    if request.resume and not request.is_resumable:
        raise ValueError(
            "a run with a function to edit by cannot be resumed, for nobody can tell whether it is"
            " the same: leave resume=True out, or give arrays"
        )
    chosen = dict(_chosen(ledger, request.edit))
    fitted, shelf = Counter(chosen.values()), _Shelf(request.threads)
    makers: dict[str, Callable[[Weight], Edited]] = {}  # none for those that leave weights out
    for pattern, given in request.edit.items():
        if callable(given):
            how = {"pattern": pattern, "function": given, "tensor_of": tensor_of}
            makers[pattern] = partial(_by_function, request, limits, shelf, **how)
        elif given is not None:
            array = _stored(pattern, given)
            makers[pattern] = partial(_by_array, request, pattern, array, fitted[pattern])
    weights = dict(ledger.weights)
    left_out = set()
    for name, pattern in chosen.items():
        if pattern not in makers:
            left_out.add(name)
        elif name in ledger.problems:
            raise ledger.problems[name]
        else:
            weights[name] = makers[pattern](weights[name])
    ledger = replace(ledger, weights=weights)
    return ledger.dropping(left_out.__contains__) if left_out else ledger


def _stored(name: str, given: Any) -> StoredTensor:
    try:
        return stored_array(name, given)
    except TypeError as error:
        raise TypeError(f"edit: {error}") from None


def _chosen(ledger: Ledger, edit: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the names of weights that are edited, and the first pattern that fits each."""
    for pattern in edit:
        if not isinstance(pattern, str):
            raise TypeError(f"edit: the name of a weight must be a str, not {pattern!r}")
    names = [*ledger.weights, *(name for name in ledger.problems if name not in ledger.weights)]
    for pattern in unfitting(edit, names):
        raise UnmatchedError("edit", pattern, did_you_mean(pattern, names))
    fits = [(pattern, chooser((pattern,))) for pattern in edit]
    for name in names:
        for pattern, is_chosen in fits:
            if is_chosen(name):
                yield name, pattern
                break


def _by_array(
    request: Request, pattern: str, array: StoredTensor, fitted: int, weight: Weight
) -> Edited:
    """Return a weight with the values of an array; of its shape, where several are to have them."""
    _check_dtype(weight, array.dtype)
    if fitted > 1 and array.shape != weight.shape:
        raise ValueError(
            f"edit: {pattern!r} fits {fitted:,} weights, but the array is {list(array.shape)} and"
            f" {weight.name!r} {list(weight.shape)}; name the one that is meant"
        )
    return _edited(weight, array.shape, lambda *_: array, digest_of(array), request)


def _by_function(
    request: Request,
    limits: ParseLimits,
    shelf: _Shelf,
    weight: Weight,
    *,
    pattern: str,
    function: Callable[[Any], Any],
    tensor_of: Callable[[Weight], Any],
) -> Edited:
    tensor = tensor_of(weight)
    hold(limits, [(f"the edited tensor {weight.name!r}", tensor.nbytes)])
    seen: set[int] = set()

    def make() -> StoredTensor:
        try:
            given = function(tensor)
        except BaseException as error:
            error.add_note(f"edit: the function for {pattern!r}, called with {weight.name!r}")
            raise
        # Memory that somebody else knows of may be written to before it is read: of a fresh array,
        # or of a view of one, nobody else knows.
        is_view = getattr(given, "base", None) is not None
        fresh, is_alone = np.empty(2)[1:] if is_view else np.empty(2), False
        if type(given) is type(fresh):
            is_alone = all(map(le, _references(given), _references(fresh)))
        if given is None:
            raise TypeError(
                f"edit: the function for {pattern!r} returned None for {weight.name!r}: it must"
                " return an array; to leave the weight out, give None in its place"
            )
        array = _stored(weight.name, given)
        _check_dtype(weight, array.dtype)
        if array.shape != weight.shape:
            raise ValueError(
                f"edit: the function for {pattern!r} returned {list(array.shape)} for"
                f" {weight.name!r}, which is {list(weight.shape)}: a function cannot change the"
                " shape, for the header is written before; an array can"
            )
        array, crc = _owned(array, is_alone=is_alone)
        seen.add(crc)
        if len(seen) > 1:
            raise ValueError(
                f"edit: the function for {pattern!r} returned other values for {weight.name!r} than"
                " before: it is called for each pass over a weight, and must return the same"
            )
        return array

    token = token_hex(16)
    values = partial(shelf.get, make)
    made = _edited(weight, weight.shape, values, lambda: token, request)
    made.is_made = True
    return made


def _references(given: Any) -> tuple[int, int]:
    """References that are counted to an array, and to the one that owns its memory."""
    # Too many to be alone, if no array owns it.
    base = given if given.base is None else given.base
    owns = getattr(getattr(base, "flags", None), "owndata", False)
    return sys.getrefcount(given), sys.getrefcount(base) if owns else sys.maxsize


def _owned(array: StoredTensor, *, is_alone: bool) -> tuple[StoredTensor, int]:
    """Return an array that nobody else can write to, and its CRC: a copy, unless it is alone."""
    held = array.source.held(array.offset, array.n_bytes) if is_alone else None
    if held is not None:
        return array, crc32(held)
    raw = bytearray(array.n_bytes)
    crc = array.source.read_summed(array.offset, memoryview(raw))
    return array._replace(offset=0, source=BufferSource(raw, array.source.name)), crc


def replaced_by(
    weight: Weight, tensor: StoredTensor, request: Request, token: Callable[[], str]
) -> Edited:
    """Return a weight with a tensor's values; `token` tells them from others."""
    return _edited(weight, tensor.shape, lambda *_: tensor, token, request)


def _edited(
    weight: Weight,
    shape: tuple[int, ...],
    values: Callable[[int, int], StoredTensor],
    token: Callable[[], str],
    request: Request,
) -> Edited:
    first, *others = weight.parts
    # Values are rounded to the weight's own dtype before anything else. What has none is not
    # rounded but to what it comes out as; nor is what is cast anyway.
    own = weight.own_dtype
    is_cast = own is None or (own.kind == "float" and request.cast_all)
    dtype = UNROUNDED if own is None or is_cast else own
    seen = first._replace(dtype=dtype, shape=shape)
    source = ReplacedSource(values, dtype, seen.n_elements, first.source)
    seen = seen._replace(offset=0, n_bytes=source.size, source=source)
    return Edited(weight.name, shape, (seen, *others), weight, source, token, False)


def _check_dtype(weight: Weight, dtype: DType) -> None:
    own = weight.own_dtype
    if own is None or own.kind == "float":
        if dtype.kind != "float":
            raise TypeError(f"edit: {weight.name!r} has floats, but the array {dtype}: cast it")
    elif dtype is not own:
        raise TypeError(f"edit: {weight.name!r} is {own}, but the array {dtype}: cast it")


def digest_of(array: StoredTensor) -> Callable[[], str]:
    """Return what makes the hash of a tensor, once."""

    @cache
    def digest() -> str:
        state = sha256(f"{array.dtype} {array.shape}".encode())
        for begin in range(0, array.n_bytes, _PIECE):
            n_bytes = min(_PIECE, array.n_bytes - begin)
            state.update(array.source.read(array.offset + begin, n_bytes))
        return state.hexdigest()

    return digest


class _Shelf:
    """What functions have made: of one weight, and of those before that are not read to the end."""

    # These are few: bands are handed out in order, so that each of them waits for another thread.
    # Of a sample of bands none is read to the end; then too there are no more than threads.

    def __init__(self, threads: int) -> None:
        self._lock = threading.Lock()
        self._threads = threads
        self._made: dict[_Make, tuple[StoredTensor, bytearray]] = {}

    def get(self, make: _Make, first: int, last: int) -> StoredTensor:
        """Return what is made, of which the values `first` to `last` are going to be read."""
        with self._lock:
            if make not in self._made:
                unread = [make for make, (_, seen) in self._made.items() if seen.count(0)]
                kept = unread[len(unread) - self._threads + 1 :] if self._threads > 1 else []
                self._made = {make: self._made[make] for make in kept}  # room for one more
                made = make()
                self._made[make] = made, bytearray(-(-made.n_elements // _STEP))
            made, seen = self._made[make]
            steps = range(-(-first // _STEP), -(-last // _STEP))
            seen[steps.start : steps.stop] = b"\1" * len(steps)
            return made
