"""What AQLM and VPTQ call the parts of a weight."""

from __future__ import annotations

from typing import ClassVar

from anamnesis.schemes.core.layout import Field
from anamnesis.schemes.families.codebooks.weight import FLOATS

_UNCORRECTED = "vectors are not corrected"


class Aqlm:
    """AQLM's: codes of vectors in several codebooks, which are added up."""

    fields: ClassVar[tuple[Field, ...]] = (
        Field("codes", "{module}codes", ("I8", "I16", "I32")),
        Field("codebooks", "{module}codebooks", FLOATS),
        Field("scales", "{module}scales", FLOATS),
    )
    refused: ClassVar[tuple[Field, ...]] = ()


class Vptq:
    """VPTQ's: codes of vectors, and of what corrects them."""

    fields: ClassVar[tuple[Field, ...]] = (
        Field("codes", "{module}indices", ("I32", "I16")),
        Field("codebooks", "{module}centroids.weight", FLOATS),
        Field("corrections", "{module}res_indices", ("I16",), unless=_UNCORRECTED),
        Field("corrected by", "{module}res_centroids.weight", FLOATS, unless=_UNCORRECTED),
        Field("order", "{module}perm", ("I16", "I64"), unless="columns are in order"),
        Field("scales", "{module}weight_scale", FLOATS, unless="columns have no scales"),
        Field("biases", "{module}weight_bias", FLOATS, unless="columns have no biases"),
    )
    refused: ClassVar[tuple[Field, ...]] = (
        Field("outliers", "{module}outlier_indices"),
        Field("outliers", "{module}outlier_centroids.weight"),
    )
