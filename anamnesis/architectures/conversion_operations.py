"""The operations that rows name, each with the way back, on facts of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anamnesis.architectures import operations
from anamnesis.architectures.model_facts import CONFIG, Facts, malformed
from anamnesis.base.errors import ParseError
from anamnesis.schemes.core.weight import Weight

_MOST_PADDING = 128  # rows


Function = Callable[[Weight, Facts], Weight]
Reshaping = Callable[[tuple[int, ...]], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Each:
    """An operation on each weight by itself, and its inverse."""

    made: Function
    undone: Function

    def there(self, weights: Sequence[Weight], facts: Facts) -> list[Weight]:
        return [self.made(weight, facts) for weight in weights]

    def back(self, weights: Sequence[Weight], facts: Facts) -> list[Weight]:
        return [self.undone(weight, facts) for weight in weights]


def permute(heads: str) -> Each:
    """Rows of each head: halves, which rotate, (H, 2, d/2) -> pairs, (H, d/2, 2)."""

    def count(weight: Weight, facts: Facts) -> int:
        n, d = facts.number(heads), facts.head_dim
        if weight.shape[0] != n * d:
            raise malformed(
                f"{weight.name} has {weight.shape[0]:,} rows, not {n:,} heads ({heads}) of {d:,}"
            )
        return n

    return Each(
        lambda w, facts: operations.permuted(w, w.name, count(w, facts)),
        lambda w, facts: operations.unpermuted(w, w.name, count(w, facts)),
    )


def mapped(there: str, back: str) -> Each:
    """Values as a function of `operations` has them, such as 1 more."""
    return Each(
        lambda w, _: operations.mapped_values(w, w.name, there),
        lambda w, _: operations.mapped_values(w, w.name, back),
    )


def reshape(there: Reshaping, back: Reshaping) -> Each:
    """The same values in another shape, as functions of the given one say it."""
    return Each(
        lambda w, _: operations.reshaped(w, w.name, there(w.shape)),
        lambda w, _: operations.reshaped(w, w.name, back(w.shape)),
    )


def without_padding(weight: Weight, facts: Facts) -> Weight:
    """Return an embedding's rows of the vocabulary; more than pad it are no padding."""
    n = facts.number("vocab_size")
    is_padded = n < weight.shape[0] < n + _MOST_PADDING
    return operations.first_rows(weight, weight.name, n) if is_padded else weight


@dataclass(frozen=True, slots=True)
class Stack:
    """Matrices of experts in one stack, or norms of heads."""

    counts: str = "num_local_experts"

    def there(self, weights: Sequence[Weight], facts: Facts) -> list[Weight]:
        """E x (rows, cols) -> (E, rows, cols), or E x (n,) -> (E, n)."""
        name, n = weights[0].name, len(weights)
        for other in weights:
            if other.shape != weights[0].shape or not other.shape:
                raise ValueError(
                    f"{name} {list(weights[0].shape)} and {other.name} {list(other.shape)} are of"
                    " different shapes, and would be one stack"
                )
        if len(weights[0].shape) > 1:
            return [operations.stacked(name, weights)]
        rows = [operations.reshaped(w, w.name, (1, *w.shape)) for w in weights]
        return [operations.gathered_rows(name, rows, n, range(n), (n, *weights[0].shape))]

    def back(self, weights: Sequence[Weight], facts: Facts) -> list[Weight]:
        """(E, rows, cols) -> E x (rows, cols), or (E, n) -> E x (n,)."""
        (stack,) = weights
        n, *shape = stack.shape
        if len(shape) == 1:
            rows = [operations.rows_between(stack, stack.name, n, i, i + 1) for i in range(n)]
            return [operations.reshaped(row, row.name, tuple(shape)) for row in rows]
        return [operations.matrix_of(stack, stack.name, i) for i in range(n)]


@dataclass(frozen=True, slots=True)
class Halves:
    """Matrices that lie one below the other, apart."""

    def there(self, weights: Sequence[Weight], facts: Facts) -> list[Weight]:
        """(.., 2 n, cols) -> 2 x (.., n, cols)."""
        (weight,) = weights
        period = _rows(weight)
        if period % 2:
            raise ParseError(f"{weight.name} has {period} rows, which are no two halves")
        n = period // 2
        return [
            operations.rows_between(weight, weight.name, period, first, first + n)
            for first in (0, n)
        ]

    def back(self, weights: Sequence[Weight], facts: Facts) -> list[Weight]:
        """2 x (.., n, cols) -> (.., 2 n, cols)."""
        return [_in_turns(weights, _rows(weights[0]))]


@dataclass(frozen=True, slots=True)
class Alternate:
    """Matrices whose rows take turns, apart."""

    def there(self, weights: Sequence[Weight], facts: Facts) -> list[Weight]:
        """(.., 2 n, cols) -> 2 x (.., n, cols): even rows, odd rows."""
        (weight,) = weights
        return [operations.every_other(weight, weight.name, first) for first in (0, 1)]

    def back(self, weights: Sequence[Weight], facts: Facts) -> list[Weight]:
        """2 x (.., n, cols) -> (.., 2 n, cols)."""
        return [_in_turns(weights, 1)]


@dataclass(frozen=True, slots=True)
class PerHead:
    """Rows of each head that belong to several matrices, apart: [H, n_i, cols] of each."""

    heads: str
    sizes: tuple[str, ...]

    def there(self, weights: Sequence[Weight], facts: Facts) -> list[Weight]:
        """(H (n_0 + n_1), cols) -> (H, n_0, cols), (H, n_1, cols)."""
        (weight,) = weights
        heads = facts.number(self.heads)
        sizes = [facts.number(name) for name in self.sizes]
        period = sum(sizes)
        if weight.shape[0] != heads * period:
            raise ParseError(
                f"{weight.name} has {weight.shape[0]:,} rows, not {heads} heads of {period}"
            )
        made, first = [], 0
        for n in sizes:
            rows = operations.rows_between(weight, weight.name, period, first, first + n)
            made.append(operations.reshaped(rows, weight.name, (heads, n, *weight.shape[1:])))
            first += n
        return made

    def back(self, weights: Sequence[Weight], facts: Facts) -> list[Weight]:
        """(H, n_0, cols), (H, n_1, cols) -> (H (n_0 + n_1), cols)."""
        heads, sizes = weights[0].shape[0], [weight.shape[1] for weight in weights]
        shape = (heads * sum(sizes), *weights[0].shape[2:])
        return [operations.interleaved(weights[0].name, weights, sizes, shape)]


@dataclass(frozen=True, slots=True)
class Turn:
    """Matrices transposed."""

    which: tuple[int, ...] | None = None

    def there(self, weights: Sequence[Weight], facts: Facts) -> list[Weight]:
        return [
            operations.turned(w, w.name) if self.which is None or i in self.which else w
            for i, w in enumerate(weights)
        ]

    back = there


def behind_padding(weight: Weight, facts: Facts) -> Weight:
    """Return rows of positions without those before the first: (first + n, cols) -> (n, cols)."""
    n, first = weight.shape[0], first_position(facts)
    if n <= first:
        raise ParseError(f"{weight.name} has {n} rows, of which {first} are before any")
    return operations.rows_between(weight, weight.name, n, first, n)


def with_padding(weight: Weight, facts: Facts) -> Weight:
    """Return (n, cols) -> (first + n, cols): rows that nothing reads are as the first one."""
    (n, *cols), first = weight.shape, first_position(facts)
    order = [*[0] * first, *range(n)]
    return operations.gathered_rows(weight.name, [weight], n, order, (first + n, *cols))


def first_position(facts: Facts) -> int:
    """Return the first position of a text, which is behind that of padding."""
    padding = facts.get("pad_token_id")
    if type(padding) is not int or padding < 0:
        raise malformed(f"pad_token_id is {padding!r}, not a token's number")
    return padding + 1


def _rows(weight: Weight) -> int:
    """Return the rows of a matrix, or of each of a stack."""
    return weight.shape[-2] if len(weight.shape) > 1 else weight.shape[0]


def _in_turns(weights: Sequence[Weight], period: int) -> Weight:
    """Return groups of `period` rows of each of some weights of one shape, in turn."""
    first, n = weights[0], len(weights)
    *lead, rows, cols = first.shape if len(first.shape) > 1 else (*first.shape, 1)
    shape = (*lead, rows * n, cols) if len(first.shape) > 1 else (rows * n,)
    return operations.interleaved(first.name, weights, [period] * n, shape)


# --- heads of linear attention --------------------------------------------------------------------
#
# K key heads are shared by r = V / K value heads each. Hugging Face has value heads by key heads,
# [K, r]; llama.cpp has them as its broadcast repeats key heads, [r, K].


def value_heads(
    *, after_keys: bool = False, is_scalar: bool = False, in_columns: bool = False
) -> Each:
    """Rows of value heads, or columns, in llama.cpp's order: (.. K, r, d) -> (.. r, K, d)."""
    take = operations.gathered_columns if in_columns else operations.in_order

    def order(weight: Weight, facts: Facts) -> list[int]:
        """Return indices that put value heads, behind those of keys, into llama.cpp's order."""
        first = 0
        if after_keys:
            first = 2 * facts.number("linear_num_key_heads") * facts.number("linear_key_head_dim")
        size = 1 if is_scalar else facts.number("linear_value_head_dim")
        n, shared = _key_heads(facts)
        of = weight.shape[-1 if in_columns else 0]
        _check_size(weight.name, of, first + n * shared * size)
        heads = [key * shared + value for value in range(shared) for key in range(n)]
        return [*range(first), *(first + head * size + i for head in heads for i in range(size))]

    return Each(
        lambda w, facts: take(w, w.name, order(w, facts)),
        lambda w, facts: take(w, w.name, operations.inverse(order(w, facts))),
    )


@dataclass(frozen=True, slots=True)
class Apart:
    """Rows of queries, keys, values and gates that each key head has, as two matrices."""

    def there(self, weights: Sequence[Weight], facts: Facts) -> list[Weight]:
        """(K (q k v z), cols) -> (all q, all k, all v; cols), (all z; cols)."""
        (weight,) = weights
        n = weight.shape[0]
        joined, gates = self._orders(facts, n, weight.name)
        return [
            operations.gathered_rows(
                weight.name, [weight], n, order, (len(order), *weight.shape[1:])
            )
            for order in (joined, gates)
        ]

    def back(self, weights: Sequence[Weight], facts: Facts) -> list[Weight]:
        """(all q, all k, all v; cols), (all z; cols) -> (K (q k v z), cols)."""
        n = sum(weight.shape[0] for weight in weights)
        joined, gates = self._orders(facts, n, weights[0].name)
        order = operations.inverse([*joined, *gates])
        shape = (len(order), *weights[0].shape[1:])
        return [operations.gathered_rows(weights[0].name, weights, len(order), order, shape)]

    def _orders(self, facts: Facts, of: int, name: str) -> tuple[list[int], list[int]]:
        n, shared = _key_heads(facts)
        keys = facts.number("linear_key_head_dim")
        values = shared * facts.number("linear_value_head_dim")
        period = 2 * (keys + values)
        _check_size(name, of, n * period)
        parts, start = [], 0
        for size in (keys, keys, values, values):
            rows = [head * period + start + i for head in range(n) for i in range(size)]
            parts.append(rows)
            start += size
        return [*parts[0], *parts[1], *parts[2]], parts[3]


def _key_heads(facts: Facts) -> tuple[int, int]:
    """Return how many there are, and how many value heads share one."""
    n, n_values = facts.number("linear_num_key_heads"), facts.number("linear_num_value_heads")
    if n_values % n:
        raise malformed(
            f"linear_num_value_heads is {n_values}, not a multiple of linear_num_key_heads, {n}"
        )
    return n, n_values // n


def _check_size(name: str, n: int, of_heads: int) -> None:
    if n != of_heads:
        raise ParseError(
            f"{name} has {n:,} rows or columns of heads, not the {of_heads:,} that {CONFIG} says"
        )
