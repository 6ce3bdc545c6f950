"""From arrays to a file: the function `save`."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from anamnesis.base.arguments import checked
from anamnesis.base.dtypes import DTYPES
from anamnesis.base.limits import UNLIMITED
from anamnesis.base.printable import shown
from anamnesis.base.stored import StoredTensor
from anamnesis.checkpoint.open import NAME, in_memory, stored_array
from anamnesis.model import Model, Origin
from anamnesis.schemes.core.plain import Plain
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.tensor import Tensor

if TYPE_CHECKING:
    from anamnesis.convert.report.report import Report
    from anamnesis.convert.request.request import ConvertOptions
    from anamnesis.convert.request.spellings import Named
    from anamnesis.convert.write.sinks import Writable

__all__ = ["save"]

_WEIGHT = ".weight"


@checked
def save(
    tensors: Mapping[str, object],
    path: str | os.PathLike[str] | Writable,
    to: Named | None = None,
    *,
    conv1d: bool | None = None,
    **options: Unpack[ConvertOptions],
) -> Report:
    """Write arrays by their names, in any container, quantised if that is asked for.

    Arrays come as they are, of whatever strides and byte order; of those on other devices a copy
    is made. Nothing else is held but bands, so that what is quantised takes no memory to speak of.
    A `Tensor` is read from its model as it is written: `{**model, "new.weight": array}` is a
    mapping too. The bytes are those of `safetensors.save_file`, `numpy.savez`, `torch.save` and
    gguf-py.

    Parameters
    ----------
    tensors : mapping of str to array
        Of numpy (with ml_dtypes), torch, whatever else has `__array__` or `__dlpack__`, and
        `Tensor`. What two names share is written twice.
    path : path or writable file object
        Its ending says the container: `.safetensors`, `.gguf`, `.npz`, `.npy`, or those of torch:
        `.pth`, `.pt`, `.bin`, `.ckpt`. With `max_shard_size` it names a folder.
    to : str or Encoding, optional
        As of `Model.convert`: a container, an encoding (`bnb-nf4`), or both (`gguf-f16`). Without
        it, arrays are written as they are, or cast to `dtype` if that is given.
    conv1d : bool, optional
        As of `parse`: whether what is called as GPT-2's layers is a `Conv1D`, [in, out], as far as
        the encoding has to know.

    Other Parameters
    ----------------
    metadata : mapping
        What the file says of itself: strings for safetensors, also numbers and lists for GGUF.
    force : bool
        Replace an output that exists.
    max_shard_size : int or str, optional
        Bytes, or a text such as "5GB"; cut it into shards of safetensors of at most this, in the
        order of `tensors`, and write their index.
    threads : int, optional
        By default the CPUs that this process may use, at most 8.
    **options
        The others of `Model.convert`, but for `resume`: what lies in memory is gone with the run.

    Returns
    -------
    Report

    Raises
    ------
    TypeError
        If a name is no string, or what it names no array, or of a dtype that no format has.
    UnsupportedError
        If the container cannot hold a tensor, a name or the metadata; nothing is written then.
    OutputError
        If the output exists, or is being written by another run.
    OSError
        If there is no room, or writing fails.
    ValueError
        If neither `path` nor `to` says a container, there is no such target, or an option has a
        value that it does not take.
    """
    if options.get("resume"):
        raise ValueError("what lies in memory cannot be resumed: leave resume=True out")
    if not isinstance(tensors, Mapping):
        swapped = "; the path goes behind them" if isinstance(path, Mapping) else ""
        raise TypeError(
            f"tensors must be a mapping of names to arrays, not {shown(tensors)}{swapped}"
        )
    is_cut = options.get("max_shard_size") is not None
    asked = _container(path, "safetensors" if is_cut else None) if to is None else to
    model = _model(tensors, conv1d, in_order=is_cut)
    return model.convert(path, asked, **options)  # nothing of it is to be closed


def _container(path: Any, usual: str | None) -> str:
    """Return the container that the ending of a path says; if none does, the usual one."""
    from anamnesis.formats.written import WRITERS, asked_format

    if isinstance(path, (str, os.PathLike)):
        asked = asked_format(os.fspath(path))
        if asked is not None:
            return asked
    if usual is not None:
        return usual
    endings = ", ".join(written.endings[0] for written in WRITERS.values())
    raise ValueError(f"path says no container: give it an ending ({endings}), or pass `to`")


def _model(tensors: Mapping[str, Any], conv1d: bool | None, *, in_order: bool) -> Model:
    """Return a model of arrays and tensors, in their order or in the order of safetensors."""
    stored: dict[str, StoredTensor] = {}
    weights: list[Weight] = []
    for name, given in tensors.items():
        if not isinstance(name, str):
            raise TypeError(f"a name must be a str, not {shown(name)}")
        weight = _weight(name, given)
        weights.append(weight)
        stored.update({part.name: part for part in weight.parts})
    if len(stored) < sum(len(weight.parts) for weight in weights):
        raise ValueError("two tensors have a part of one name; give them names of their own")
    if not in_order:  # the writers of other containers go by that of `stored`
        ranks = {name: i for i, name in enumerate(DTYPES)}  # what is quantised goes last
        rank = {w.name: ranks.get(w.own_dtype.name, -1) if w.own_dtype else -1 for w in weights}
        weights.sort(key=lambda weight: (-rank[weight.name], weight.name))
    by_name = {weight.name: weight for weight in weights}
    ledger = Ledger(stored, by_name, read_facts=lambda: QuantFacts(conv1d=conv1d))
    return Model(in_memory(stored), ledger, UNLIMITED, Origin(_no_path, NAME, {}))


def _no_path(*_: Any) -> Model:
    raise TypeError("arrays in memory cannot be opened again")


def _weight(name: str, given: Any) -> Weight:
    """Return a weight under a name; what it is stored as follows suit."""
    if not isinstance(given, Tensor):
        array = stored_array(name, given)
        return Plain(name, array.shape, (array,))
    given._model._check_open()
    weight = given._weight
    if name == weight.name:
        return weight
    old, new = weight.name, name
    if old.endswith(_WEIGHT) and new.endswith(_WEIGHT):
        old, new = old.removesuffix(_WEIGHT), new.removesuffix(_WEIGHT)
    made = copy.copy(weight)
    made.name = name
    made.parts = tuple(
        part._replace(name=new + part.name.removeprefix(old)) if part.name.startswith(old) else part
        for part in weight.parts
    )
    return made
