"""Whether a directory holds its model a second time, in another format.

Publishers put `pytorch_model.bin` beside `model.safetensors`, and Mistral
`consolidated.safetensors` beside transformers' shards. What only looks like such a copy must not be
left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from anamnesis.base.stored import StoredTensor
from anamnesis.checkpoint.indexes import is_buffer
from anamnesis.formats.base import Container


def first_without_twin(container: Container, stored: Mapping[str, StoredTensor]) -> str | None:
    """Return a tensor that is not among `stored` under its name, with its shape; None if all are.

    One that is tied to another is there if the other is, for safetensors writers keep one of them.
    """
    tied = {name: names for names in container.tied for name in names}
    for name, tensor in container.tensors.items():
        twins = (stored.get(other) for other in tied.get(name, [name]))
        if any(twin is not None and twin.shape == tensor.shape for twin in twins):
            continue
        if name in stored or not is_buffer(name):
            return name
    return None


def is_renamed_copy(containers: Iterable[Container], stored: Mapping[str, StoredTensor]) -> bool:
    """Return whether tensors could be `stored` ones under other names, by their shapes."""
    # Or by the number of their elements, where one stacks the experts that the other has singly.
    copies = [tensor for container in containers for tensor in container.tensors.values()]
    if _shapes(copies) <= _shapes(stored.values()):
        return True
    n_elements = _n_elements(copies)
    return n_elements > 0 and n_elements == _n_elements(stored.values())


def _shapes(tensors: Iterable[StoredTensor]) -> Counter[tuple[int, ...]]:
    """Count the shapes of matrices, of all tensors if there are none: scales differ by format."""
    shapes = Counter(t.shape for t in tensors)
    return Counter({s: n for s, n in shapes.items() if len(s) > 1}) or shapes


def _n_elements(tensors: Iterable[StoredTensor]) -> int:
    return sum(t.n_elements for t in tensors if len(t.shape) > 1)
