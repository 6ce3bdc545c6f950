"""DTensors in a pickle: one rank's part of a tensor, and which part it is.

`torch.save` writes one as a call that makes an empty tensor, and its attributes:

    torch._tensor._rebuild_from_type_v2(
        torch._utils._rebuild_wrapper_subclass, DTensor, (DTensor, dtype, shape, strides, …),
        {"_local_tensor": tensor, "_spec": DTensorSpec})

    DTensorSpec(mesh, placements=(Shard(dim) | _StridedShard(dim, split_factor) | Replicate(), …))
    DeviceMesh(_coordinate_on_dim=[…], _layout or _mesh or mesh: ranks along each dimension)

A placement says what each dimension of the mesh does to the tensor, the first of them first.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from anamnesis.base.plain_json import json_table
from anamnesis.base.printable import kind_of
from anamnesis.formats.pickle.nodes import Call, Global, in_words
from anamnesis.formats.torch import values

_TABLE = json_table(__file__)  # of the classes of DTensors and of what they need
_MAX_MESH_DIMS = 8


class Placement(NamedTuple):
    """What one dimension of a mesh does to a tensor."""

    n_ranks: int
    coordinate: int  # of this rank
    dim: int | None  # that is cut; None if each rank has all
    split_factor: int = 1


class Sharding(NamedTuple):
    """The tensor that one is a part of, and which part."""

    shape: tuple[int, ...]
    placements: tuple[Placement, ...]

    @property
    def is_whole(self) -> bool:
        return all(placed.dim is None or placed.n_ranks == 1 for placed in self.placements)


class _Unfit(Exception):
    """Why a DTensor is not read, in words that follow its name."""


def known(module: str, name: str) -> Global | None:
    """Return the stand-in for a global of DTensors; None for one that they do not need."""
    if f"{module}.{name}" in _TABLE["tensors"]:
        return values.SubclassGlobal(module, name)
    is_needed = module in _TABLE["modules"] and name in _TABLE["names"]
    return Global(module, name) if is_needed else None


def read(made: values.Wrapper) -> tuple[values.TorchTensor, Sharding] | values.Refused:
    """Return one rank's part of a tensor, and which part it is."""
    try:
        attributes = values.attributes(made.state) or {}
        local = attributes.get("_local_tensor")
        if type(local) is not values.TorchTensor:
            raise _Unfit(f"whose local tensor is {kind_of(local)}")
        spec = _fields(attributes.get("_spec"), "DTensorSpec")
        mesh = _fields(spec.get("mesh"), "DeviceMesh")
        sizes, placements = _sizes(mesh), spec.get("placements")
        coordinates = mesh.get("_coordinate_on_dim")
        if not isinstance(coordinates, (list, tuple)) or not isinstance(placements, (list, tuple)):
            raise _Unfit("of a rank outside of its mesh")
        if not len(sizes) == len(coordinates) == len(placements) <= _MAX_MESH_DIMS:
            raise _Unfit("whose mesh and placements have other dimensions")
        entries = spec.get("shard_order") or ()
        if type(entries) is not tuple or not all(map(_is_rising, entries)):
            raise _Unfit("that the dimensions of its mesh cut in another order than theirs")
        made_of = zip(sizes, coordinates, placements, strict=True)
        placed = tuple(_placement(*each, n_dims=len(made.shape)) for each in made_of)
    except _Unfit as why:
        return values.Refused(f"a DTensor {why}", made.shape, (made.state,))
    return local, Sharding(made.shape, placed)


def _fields(value: Any, name: str) -> dict[str, Any]:
    fields = values.fields_of(value, name)
    if fields is None:
        raise _Unfit(f"without a {name}")
    return fields


def _sizes(mesh: dict[str, Any]) -> tuple[int, ...]:
    """Return how many ranks each dimension of a mesh has, as this or an older torch says it."""
    ranks = mesh.get("mesh") or mesh.get("_mesh")
    if type(ranks) is values.TorchTensor:
        return ranks.shape
    layout = _fields(mesh.get("_layout"), "_MeshLayout")
    axes, shape = layout.get("axes"), layout.get("shape")
    if type(axes) is tuple:
        shape = tuple([_fields(axis, "_FlatLayout").get("shape") for axis in axes])
    sizes = [n if type(n) is tuple else (n,) for n in (shape if type(shape) is tuple else (shape,))]
    if not all(type(n) is int and n > 0 for each in sizes for n in each):
        raise _Unfit("whose mesh has no usable sizes")
    return tuple(map(prod, sizes))


def _is_rising(entry: Any) -> bool:
    """Tell whether an entry of a tensor's dimension names those of the mesh in their order."""
    dims: Any = entry.args[1] if type(entry) is Call and len(entry.args) == 2 else None
    is_told = type(dims) is tuple and all(type(dim) is int for dim in dims)
    return is_told and list(dims) == sorted(dims)


def _placement(n_ranks: int, coordinate: Any, placed: Any, n_dims: int) -> Placement:
    if type(coordinate) is not int or not 0 <= coordinate < n_ranks:
        raise _Unfit("of a rank outside of its mesh")
    if values.is_a(placed, "Replicate"):
        return Placement(n_ranks, coordinate, None)
    state = values.fields_of(placed, "Shard", "_StridedShard")
    if state is None:
        raise _Unfit(f"that is placed as {in_words(getattr(placed, 'function', placed))}")
    dim, factor = state.get("dim"), state.get("split_factor", 1)
    if type(dim) is not int or not 0 <= dim < n_dims or type(factor) is not int or factor < 1:
        raise _Unfit("that is cut along no dimension of its own")
    return Placement(n_ranks, coordinate, dim, factor)
