"""From a path to a `Model`: `parse`, and the verbs that take a path."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeAlias, TypedDict, Unpack

from anamnesis.base.arguments import Size, check_kind, checked, size
from anamnesis.base.dtypes import DTypeLike, stored_dtype
from anamnesis.base.limits import UNLIMITED, ParseLimits
from anamnesis.base.source import Readable
from anamnesis.checkpoint.file_names import OLLAMA_PREFIX
from anamnesis.checkpoint.open import Checkpoint, open_checkpoint
from anamnesis.convert.report.inspection import Inspection
from anamnesis.convert.report.problems import first_of
from anamnesis.formats.base import Opening
from anamnesis.model import Model, Origin
from anamnesis.pipelines import pipeline_at, write_pipeline
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.detect.registry import claim_all
from anamnesis.sources.urls import kind_of_url

if TYPE_CHECKING:
    from anamnesis.convert.plan.plan import Plan
    from anamnesis.convert.report.report import Report
    from anamnesis.convert.request.request import ConvertOptions, RememberOptions
    from anamnesis.convert.request.spellings import Named
    from anamnesis.convert.write.sinks import Writable

Where = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO | Readable
LayoutName: TypeAlias = Literal["modelopt", "comfyui"]


class ParseOptions(TypedDict, total=False):
    """The keyword options of `parse`, whose docstring explains them."""

    limits: ParseLimits | None
    block_size: tuple[int, int] | None
    mmap: bool
    select: str | None
    variant: str | None
    config: str | os.PathLike[str] | None
    allow_foreign: bool
    void_dtype: str | None
    conv1d: bool | None
    layout: LayoutName | None
    fold_pre_quant_scale: bool
    remote_buffer: Size | None
    strict: bool


if TYPE_CHECKING:

    class AllOptions(ParseOptions, RememberOptions, total=False):
        """The options of `parse` and of `Model.remember` together."""

    class AllConvertOptions(ParseOptions, ConvertOptions, total=False):
        """The options of `parse` and of `Model.convert` together."""


@checked
def parse(
    where: Where,
    *,
    limits: ParseLimits | None = None,
    block_size: tuple[int, int] | None = None,
    mmap: bool = False,
    select: str | None = None,
    variant: str | None = None,
    config: str | os.PathLike[str] | None = None,
    allow_foreign: bool = False,
    void_dtype: str | None = None,
    conv1d: bool | None = None,
    layout: LayoutName | None = None,
    fold_pre_quant_scale: bool = False,
    remote_buffer: Size | None = None,
    strict: bool = False,
) -> Model:
    """Parse the headers of a model; no tensor data is read.

    Parameters
    ----------
    where : path, address, bytes-like or file object
        A file, a directory of shards, the bytes of a file, or anything with `read`; what cannot
        `seek`, such as a pipe, is copied first, in memory or if it is long to a temporary file. Any
        part of a GGUF model in several files stands for all. `ollama:llama3.2:1b` is the file that
        Ollama has of that model. A pipeline of diffusers' is several models: name one of its
        folders. `convert` and the like take all of it. `https://`, `hf://ORG/MODEL[@REVISION]`,
        `s3://`, `gs://` and `az://` name what is elsewhere, which is read there.
    limits : ParseLimits, optional
        Budgets for untrusted input; unbounded by default.
    block_size : (int, int), optional
        Rows and columns that share a scale, where neither shapes nor config settle it.
    mmap : bool
        Map files instead of reading them. A file that is cut short meanwhile kills the process.
    select : str, optional
        Take only the tensors below this name, such as `model_state`, and call them by what follows.
    variant : str, optional
        Of a directory that holds its model twice, the copy to take: `fp16` takes
        `model.fp16.safetensors`. By default it is the one without a word.
    config : path, optional
        A folder with the config.json and the tokenizer that weights without a config go with, such
        as those that a trainer has left: a directory that is written has them.
    allow_foreign : bool
        Read also pickles that refer to what no tensor needs; nothing is imported or called either
        way.
    void_dtype : str, optional
        The dtype of NumPy arrays whose items are bytes without a meaning and as long, as numpy
        saves those of ml_dtypes: `F8_E4M3`, `float8_e4m3fn`. Two bytes are BF16 if not given.
    conv1d : bool, optional
        Whether quantised layers that are called as GPT-2's are transformers' `Conv1D`, whose
        weights are transposed, or nn.Linear; by default what config.json says of the model's type.
    layout : str, optional
        Whose NVFP4 and MXFP8 it is, `modelopt` or `comfyui`, where shapes are those of both and
        neither a marker nor the config tells.
    fold_pre_quant_scale : bool
        Multiply the columns of a weight by the `pre_quant_scale` that ModelOpt's SmoothQuant and
        AWQ store beside it, for the layer's inputs. By default such a scale is a problem: no plain
        model scales its inputs.
    remote_buffer : int or str, optional
        Bytes, or a text such as "64MB", of what is on its way at the same time while a model that
        is elsewhere is converted: 64 MiB by default.
    strict : bool
        Raise the first problem at once if any tensor cannot be read. By default the others can be
        used; `Model.problems` says what is wrong.

    Returns
    -------
    Model
        A mapping from names to `Tensor`; close it, or use it as a context manager.

    Raises
    ------
    ParseError
        If the input is malformed; the message has the offset.
    UnsupportedError
        If `strict` is set, and a tensor is in an encoding that is not supported.
    DisallowedGlobal
        If a pickle refers to what no tensor needs, and `allow_foreign` is not set.
    LimitExceeded
        If a limit or a permanent cap would be exceeded.
    OSError
        If something cannot be opened or read.
    TypeError
        If `where` is nothing that can be read, such as a file opened in text mode, or an option is
        of another type.
    ValueError
        If `void_dtype` is no dtype of whole bytes, or `block_size` is less than 1 by 1, or
        nobody has the `layout`.
    """
    check_kind("limits", limits, ParseLimits)
    if remote_buffer is not None:
        remote_buffer = size("remote_buffer", remote_buffer)
    if isinstance(where, Model):
        raise TypeError("where is a Model already, which has these verbs: model.convert(...)")
    tiles = None
    if layout is not None:
        from anamnesis.schemes.detect.tiled import PRODUCERS  # only here, for a quick start

        if layout not in PRODUCERS:
            raise ValueError(f"layout must be {' or '.join(PRODUCERS)}; got {layout!r}")
        tiles = PRODUCERS[layout]
    options: ParseOptions = {
        "limits": limits,
        "block_size": block_size,
        "mmap": mmap,
        "select": select,
        "variant": variant,
        "config": None if config is None else os.path.abspath(config),
        "allow_foreign": allow_foreign,
        "void_dtype": void_dtype,
        "conv1d": conv1d,
        "layout": layout,
        "fold_pre_quant_scale": fold_pre_quant_scale,
        "remote_buffer": remote_buffer,
    }
    if hasattr(where, "read"):
        from anamnesis.sources.stream import seekable

        where = seekable(where)
    origin = Origin(parse, _lasting(where), options)
    limits = limits or UNLIMITED
    void = None if void_dtype is None else stored_dtype(void_dtype)
    opening = Opening(mmap, allow_foreign, void, remote_buffer)
    checkpoint = open_checkpoint(
        where, limits, opening, select=select, variant=variant, config=config
    )
    try:
        ledger = _claim(checkpoint, block_size, conv1d, tiles, folds=fold_pre_quant_scale)
        if strict and ledger.problems:
            raise first_of(ledger.problems)
    except BaseException:
        checkpoint.close()
        raise
    return Model(checkpoint, ledger, limits, origin)


def inspect(where: Where, dtype: DTypeLike = "bf16", **options: Unpack[ParseOptions]) -> Inspection:
    """Return the facts of a model: `parse` and `Model.inspect` in one, with the options of `parse`.

    Raises
    ------
    AnamnesisError, OSError, TypeError, ValueError
        As they do.
    """
    with parse(where, **options) as model:
        return model.inspect(dtype)


def remember(
    where: Where,
    out: str | os.PathLike[str] | Writable | Callable[[str, Any], object],
    dtype: DTypeLike = "bf16",
    **options: Unpack[AllOptions],
) -> Report:
    """Write a model at full precision: `parse` and `Model.remember` in one.

    Parameters
    ----------
    where : path, bytes-like or file object
    out : path, writable file object, or function
    dtype : str, numpy.dtype, scalar type or torch.dtype
    **options : keyword options
        Those of `parse`, and those of `Model.remember`.

    Raises
    ------
    AnamnesisError, OSError, TypeError, ValueError
        As they do.
    """
    return _written("remember", where, out, dtype, options)


def convert(
    where: Where,
    out: str | os.PathLike[str] | Writable,
    to: Named | None = None,
    **options: Unpack[AllConvertOptions],
) -> Report:
    """Write a model in another encoding or container: `parse` and `Model.convert` in one.

    Parameters
    ----------
    where : path, bytes-like or file object
        Of a pipeline of diffusers', each model is converted in its folder, and the files that go
        with them are copied; the report is a `PipelineReport`.
    out : path or writable file object
    to : str or Encoding, optional
        By default what the name of `out` asks for, as of `Model.convert`.
    **options : keyword options
        Those of `parse`, and those of `Model.convert`.

    Raises
    ------
    AnamnesisError, OSError, TypeError, ValueError
        As they do.
    """
    return _written("convert", where, out, to, options)


def forget(
    where: Where,
    out: str | os.PathLike[str] | Writable,
    encoding: Named,
    **options: Unpack[AllConvertOptions],
) -> Report:
    """Quantise a model: `parse` and `Model.forget` in one.

    Parameters
    ----------
    where : path, bytes-like or file object
    out : path or writable file object
    encoding : str or Encoding
    **options : keyword options
        Those of `parse`, and those of `Model.convert`.

    Raises
    ------
    AnamnesisError, OSError, TypeError, ValueError
        As they do.
    """
    return _written("forget", where, out, encoding, options)


dequantize, quantize = remember, forget  # as others call these verbs


def plan(where: Where, to: Named = "safetensors", **options: Unpack[AllConvertOptions]) -> Plan:
    """Return what `convert` would write: `parse` and `Model.plan` in one.

    Parameters
    ----------
    where : path, bytes-like or file object
    to : str or Encoding
    **options : keyword options
        Those of `parse`, and those of `Model.convert`.

    Raises
    ------
    AnamnesisError, OSError, TypeError, ValueError
        As they do.
    """
    with parse(where, **_opening(options)) as model:
        return model.plan(to, **options)  # type: ignore[misc]


def detect_format(where: Where) -> str | None:
    """Return the id of a file's format by its first bytes; None if it is none that is read.

    The rest of the file may be broken. A file object is left where it was.

    Parameters
    ----------
    where : path, bytes-like or file object

    Returns
    -------
    str or None
        `safetensors`, `gguf`, `npz`, `npy` or `torch`.

    Raises
    ------
    OSError
        If it cannot be opened or read; for a directory too.
    TypeError
        If `where` is nothing that can be read.
    """
    from anamnesis.formats.registry import detect
    from anamnesis.sources.open import open_source

    position = where.tell() if hasattr(where, "tell") else None
    try:
        with open_source(where) as source:
            return detect(source)
    finally:
        if position is not None:
            where.seek(position)  # type: ignore[union-attr]


def _written(verb: str, where: Where, out: Any, to: Any, options: Any) -> Report:
    """Write a model, or each one of a pipeline."""
    if pipeline := pipeline_at(where):
        return write_pipeline(parse, pipeline, out, to, options, verb)
    with parse(where, **_opening(options)) as model:
        report: Report = getattr(model, verb)(out, to, **options)
    return report


def _opening(options: Any) -> dict[str, Any]:
    """Take the options of `parse` out of all."""
    return {name: options.pop(name) for name in ParseOptions.__annotations__ if name in options}


def _lasting(where: Any) -> Any:
    """Return what leads to the input from another folder, too."""
    is_path = isinstance(where, (str, os.PathLike)) and not kind_of_url(where)
    if not is_path or (isinstance(where, str) and where.startswith(OLLAMA_PREFIX)):
        return where
    path = os.fspath(where)
    return path if os.path.isabs(path) else os.path.abspath(path)


def _claim(
    checkpoint: Checkpoint,
    block_size: tuple[int, int] | None,
    conv1d: bool | None,
    tiles: bool | None = None,
    *,
    folds: bool,
) -> Ledger:
    """Find out what becomes of each stored tensor."""
    read_facts = cache(
        lambda: checkpoint.read_facts().given(block_size, conv1d, tiles, folds=folds)
    )
    if not checkpoint.beside:  # which matters only if something in the file may be quantised
        read_facts()
    ledger = claim_all(
        checkpoint.stored,
        read_facts,
        checkpoint.unreadable,
        self_contained=checkpoint.self_contained,
        whole=checkpoint.is_whole,
    )
    for name, shape in checkpoint.shapes.items():
        if name in ledger.weights:
            from anamnesis.architectures.operations import reshaped  # only here, for a quick start

            ledger.weights[name] = reshaped(ledger.weights[name], name, shape)
    return ledger
