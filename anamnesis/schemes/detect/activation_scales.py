"""Scales of activations and of caches, which are dropped: by names and places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set

from anamnesis.base.plain_json import json_table
from anamnesis.base.stored import StoredTensor

# Ranges of activations and of caches, measured for inference in 8 bits: a full-precision model has
# no use for them. The former lie beside the weight that they are for, the latter in an attention.
_TABLE = json_table(__file__)
_ACTIVATION, _CACHE = (frozenset(_TABLE[of].split()) for of in ("activations", "caches"))
_ACTIVATION_SUFFIXES = ("_input_scale", "_activation_scale", "_qscale_act", "_output_scale")


def activation_side(name: str) -> bool:
    """Return whether a name belongs to a range of activations or of a cache."""
    last = name.rpartition(".")[2]
    return last in _ACTIVATION or last in _CACHE or last.endswith(_ACTIVATION_SUFFIXES)


def ranges_among(
    tensors: Iterable[StoredTensor],
    weights: Mapping[str, tuple[int, ...]],
    modules: Set[str],
    *,
    kv_cache: bool,
    per_head: bool,
) -> Iterator[StoredTensor]:
    """Yield ranges of activations and of caches, not learned parameters that share their names."""
    # A range is one value; one for each expert, beside the experts' weights; or one for each head
    # where the config says so. It lies beside a weight of an encoding that comes with ranges, whose
    # shapes are given, or in an attention that has such weights.
    attentions = modules | {name.rpartition(".")[0] for name in modules}
    for tensor in tensors:
        module, _, last = tensor.name.rpartition(".")
        is_range = tensor.shape in ((), (1,))
        if last in _CACHE:
            is_range = is_range or (per_head and tensor.shape[1:] == (1, 1))
            lies = kv_cache or module.removesuffix(".attn") in attentions
        else:
            names = [f"{module}.weight"]
            names += [tensor.name.removesuffix(s) for s in _ACTIVATION_SUFFIXES if last.endswith(s)]
            stacks = [shape for name in names if len(shape := weights.get(name, ())) == 3]
            each = [shape for n, *_ in stacks for shape in ((n,), (n, 1), (n, 1, 1))]
            is_range, lies = is_range or tensor.shape in each, module in modules
        if is_range and lies:
            yield tensor
