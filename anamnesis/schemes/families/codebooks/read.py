"""Which stored tensors are codes of vectors, and what belongs to them."""

from __future__ import annotations

from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.layout import Field, module_of
from anamnesis.schemes.detect.config_facts import QuantFacts, VptqLayer
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.detect.unread import refuse_encoding
from anamnesis.schemes.families.codebooks.aqlm import AqlmWeight
from anamnesis.schemes.families.codebooks.vptq import WORD_BITS, VptqWeight, index_bits
from anamnesis.schemes.families.codebooks.weight import FLOATS, check_size

_MAX_COLUMNS = 1 << 18  # of which the indices of a vector are unpacked together
_UNCORRECTED = "vectors are not corrected"
_OUTLIERS = ("outlier_indices", "outlier_centroids.weight")  # VPTQ's, which are refused


class Aqlm:
    """AQLM's: codes of vectors in several codebooks, which are added up."""

    fields = (
        Field("codes", "{module}codes", ("I8", "I16", "I32")),
        Field("codebooks", "{module}codebooks", FLOATS),
        Field("scales", "{module}scales", FLOATS),
    )


class Vptq:
    """VPTQ's: codes of vectors, and of what corrects them."""

    fields = (
        Field("codes", "{module}indices", ("I32", "I16")),
        Field("codebooks", "{module}centroids.weight", FLOATS),
        Field("corrections", "{module}res_indices", ("I16",), unless=_UNCORRECTED),
        Field("corrected by", "{module}res_centroids.weight", FLOATS, unless=_UNCORRECTED),
        Field("order", "{module}perm", ("I16", "I64"), unless="columns are in order"),
        Field("scales", "{module}weight_scale", FLOATS, unless="columns have no scales"),
        Field("biases", "{module}weight_bias", FLOATS, unless="columns have no biases"),
    )


def find_all(ledger: Ledger, facts: QuantFacts) -> None:
    """Take all weights of AQLM and VPTQ; what lacks a part is refused by its names later on."""
    for codes in ledger.free():
        for fields, find in ((Aqlm.fields, _aqlm), (Vptq.fields, _vptq)):
            name = fields[0].weight_of(codes.name)
            if name is None or codes.dtype.kind == "float":
                continue
            names = (field.named(name) for field in fields)
            with ledger.refusing([*names, *_outliers(name)]):
                weight = find(codes, name, ledger, facts)
                if weight is not None:
                    ledger.take(weight)


def _outliers(name: str) -> list[str]:
    return [f"{module_of(name)}{end}" for end in _OUTLIERS]


def _aqlm(codes: StoredTensor, name: str, ledger: Ledger, facts: QuantFacts) -> AqlmWeight | None:
    """Return the weight that codes are of, None if it lacks a part."""
    _, books, scales = (ledger.find(field.named(name)) for field in Aqlm.fields)
    if books is None:
        return None
    if scales is None:
        raise codes.unsupported(
            f"{codes} has {books.name}, but no {Aqlm.fields[2].named(name)}: it may be in another "
            "shard; pass the directory"
        )
    if books.dtype.name not in FLOATS or len(books.shape) != 4 or 0 in books.shape:
        raise books.misshapen("floats [codebooks, entries, rows, columns]")
    # The config has one setting for all, and layers may have another number of codebooks.
    if facts.codebooks not in (None, books.shape) and facts.codebooks[:1] == books.shape[:1]:
        raise books.misshapen(f"floats {list(facts.codebooks or ())}, as the config has it,")
    n_books, entries, tall, wide = books.shape
    bits = entries.bit_length() - 1
    if entries != 1 << bits:
        raise books.misshapen("a power of two of entries")
    is_code = codes.dtype.name in Aqlm.fields[0].dtypes and codes.dtype.bits >= bits
    if not is_code or len(codes.shape) != 3 or codes.shape[2] != n_books or 0 in codes.shape:
        raise codes.misshapen(f"integers of {bits} bits [out groups, in groups, {n_books}]")
    if scales.dtype.name not in FLOATS or scales.shape != (codes.shape[0], 1, 1, 1):
        raise scales.misshapen(f"floats [{codes.shape[0]}, 1, 1, 1]")
    check_size(books)
    shape = (codes.shape[0] * tall, codes.shape[1] * wide)
    return AqlmWeight(name, shape, (codes, books, scales), tall)


def _vptq(codes: StoredTensor, name: str, ledger: Ledger, facts: QuantFacts) -> VptqWeight | None:
    """Return the weight that codes are of, None if it has no centroids."""
    _, centroids, *optional = (ledger.find(field.named(name)) for field in Vptq.fields)
    res_indices, res_centroids, perm, scale, bias = optional
    if centroids is None:
        return None
    if len(codes.shape) != 3:
        raise codes.misshapen("[groups, vectors, words]")
    if any(outlier in ledger.stored for outlier in _outliers(name)):
        raise refuse_encoding(codes, "VPTQ with outliers", facts)
    layer = facts.vptq_layers.get(name.removesuffix("weight").removesuffix("."))
    if layer is None:
        raise codes.unsupported(
            f"{codes}: how long VPTQ's vectors are is in config_for_layers of config.json; pass "
            "the directory that has it"
        )
    length, rows, cols = layer
    for part in (centroids, res_centroids):
        if part is not None:
            if part.dtype.name not in FLOATS or len(part.shape) != 2 or 0 in part.shape:
                raise part.misshapen("floats [groups, entries * rows]")
            if part.shape[0] != codes.shape[0] or part.shape[1] % length:
                raise part.misshapen(f"[{codes.shape[0]}, entries * {length}]")
    check_size(centroids, res_centroids)
    entries = centroids.shape[1] // length
    corrections = 0 if res_centroids is None else res_centroids.shape[1] // length
    _check_indices(codes, res_indices, layer, index_bits(entries) + index_bits(corrections))
    if codes.dtype.name == "I16" and (res_indices is None) != (res_centroids is None):
        raise codes.misshapen("res_indices beside res_centroids")
    for part, field in zip((perm, scale, bias), Vptq.fields[4:], strict=True):
        if part is not None and (part.dtype.name not in field.dtypes or part.shape != (cols,)):
            raise part.misshapen(f"{' or '.join(field.dtypes)} [{cols}]")
    parts = (codes, centroids, *(part for part in optional if part is not None))
    return VptqWeight(name, (rows, cols), parts, length, *optional)


def _check_indices(
    codes: StoredTensor, res_indices: StoredTensor | None, layer: VptqLayer, bits: int
) -> None:
    """Compare the indices with what the config says of the matrix."""
    length, rows, cols = layer
    n_groups = codes.shape[0] if len(codes.shape) == 3 else 0
    if not n_groups or cols % n_groups or cols > _MAX_COLUMNS:
        raise codes.misshapen(f"[groups, vectors, words] of {rows} x {cols}")
    vectors, per_group = -(-rows // length), cols // n_groups
    words = -(-per_group * bits // WORD_BITS)
    shapes = {"I16": (n_groups, vectors, per_group)}
    if 0 < bits <= WORD_BITS:  # one centroid takes none, and so has no words
        shapes = {"I32": (n_groups, vectors, words), **shapes}
    if codes.shape != shapes.get(codes.dtype.name):
        raise codes.misshapen(" or ".join(f"{k} {list(shape)}" for k, shape in shapes.items()))
    if res_indices is not None and (res_indices.dtype, res_indices.shape) != (
        codes.dtype,
        shapes["I16"],
    ):
        raise res_indices.misshapen(f"I16 {list(shapes['I16'])}")
