"""A model under the names that its new container's programs know."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from anamnesis.base.dropped import Dropped
from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.base.limits import Budget
from anamnesis.checkpoint.file_names import EXTENSION, MODEL_STEM
from anamnesis.checkpoint.open import Checkpoint
from anamnesis.convert.ask.mix import asked_mix
from anamnesis.convert.ask.request import Request
from anamnesis.convert.ask.targets import encoding as encoding_named
from anamnesis.formats.gguf.strings import Strings
from anamnesis.formats.gguf.values import typed
from anamnesis.schemes.claim.ledger import Ledger
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.layout import Repack

if TYPE_CHECKING:
    from anamnesis.architectures.to_gguf import AsGguf

_KEEP = "names='keep' writes Hugging Face's names, which llama.cpp does not read"
_AS_FILE = "name an output that ends in .safetensors, which keeps llama.cpp's names"
_ADAPTER = "adapter_config.json"  # PEFT's
_READ = "what it says is in the GGUF header"
_TYPE_KEY = "general.file_type"
_MOSTLY = (("NVFP4", 39), ("MXFP4", 38))  # types, and what that says of such files


class Seen(NamedTuple):
    """A model as it will be written, and what that makes of the request."""

    checkpoint: Checkpoint
    ledger: Ledger
    request: Request
    names: Mapping[str, tuple[str, ...]]
    otherwise: tuple[str, ...] = ()


def seen_as_asked(checkpoint: Checkpoint, ledger: Ledger, request: Request) -> Seen:
    """Return a model under the names of what it becomes, if asked for; all else as it is.

    A Hugging Face directory that becomes a GGUF has llama.cpp's names; a GGUF that becomes a
    directory has transformers', with config.json and a tokenizer.
    """
    if request.names == "keep":
        return Seen(checkpoint, ledger, request, {})
    if _is_named_directory(checkpoint, request):
        seen = _as_directory(checkpoint, ledger, request)
    elif _is_hugging_face(checkpoint, ledger, request):
        seen = _as_gguf(checkpoint, ledger, request)
    else:
        return Seen(checkpoint, ledger, request, {})
    _check_kept(seen)
    return seen


def _check_kept(seen: Seen) -> None:
    """Refuse to keep what is stored as several tensors, whose rows go to other places."""
    for name, weight in seen.ledger.weights.items():
        override = seen.request.override(name)
        if override is None or override[1] is not None:
            continue
        if len(weight.parts) != 1 or weight.parts[0].name != name:
            raise UnsupportedError(
                f"{name!r} cannot be kept as it is stored: it has another name there, and its rows"
                " another order",
                remedy="names='keep' leaves both",
            )


@contextmanager
def _advised(remedy: str) -> Iterator[None]:
    """Say what else can be done about a model whose own words tell nothing."""
    try:
        yield
    except (ParseError, UnsupportedError) as error:
        error.remedy = error.remedy or remedy
        raise


# --- to GGUF --------------------------------------------------------------------------------------


def _as_gguf(checkpoint: Checkpoint, ledger: Ledger, request: Request) -> Seen:
    from anamnesis.architectures.to_gguf import as_gguf  # only here: a large table
    from anamnesis.schemes.ggml.mixes import COPY

    with _advised(_KEEP):
        seen = as_gguf(checkpoint, ledger, Budget(request.limits), request.tokenizer_pre)
    if request.mix is None and request.encoding is None:
        request = _as_it_is(seen.ledger, _own_float(ledger), request)
    elif request.mix is not None and request.mix.name == COPY:
        request = replace(request, overrides=(*request.overrides, *_own_blocks(seen.ledger)))
    if request.mix is None and request.encoding is not None:
        seen.metadata.update(_what_it_is(request.encoding))
    view = _as_one_gguf(checkpoint, seen)
    return Seen(view, seen.ledger, request, seen.names, seen.otherwise)


def _is_hugging_face(checkpoint: Checkpoint, ledger: Ledger, request: Request) -> bool:
    if request.form.container != "gguf":
        return False
    if checkpoint.root is None:
        return False
    if (checkpoint.root / _ADAPTER).is_file() and not checkpoint.has_config:
        raise UnsupportedError(f"{_ADAPTER}: an adapter is no whole model", remedy=_KEEP)
    config = checkpoint.config
    is_whole = "model_type" in config and "num_hidden_layers" in config
    if not config.get("architectures") and not is_whole:
        return False
    from anamnesis.architectures.to_gguf import has_gguf_names  # only here: for a quick start

    return not has_gguf_names(ledger.weights)


def _as_it_is(ledger: Ledger, float: str, request: Request) -> Request:
    """Return a request for the float that a model has, and for the 4-bit floats that GGUF has too.

    The converter says what a file with such floats is by their number.
    """
    blocks = _own_blocks(ledger)
    types = {encoding.id.removeprefix("gguf-").upper() for _, encoding in blocks}
    told = next((number for type, number in _MOSTLY if type in types), None)
    given = {} if told is None else {"override_kv": {_TYPE_KEY: told}}
    return replace(
        request,
        mix=asked_mix(float, given),
        overrides=(*request.overrides, *blocks),
        keep_blocks=False,
    )


def _what_it_is(encoding: Encoding) -> Mapping[str, int]:
    """Return the keys that a mix has of its own, for a type that no mix is of."""
    type = encoding.id.removeprefix("gguf-").upper()
    number = dict(_MOSTLY).get(type)
    told = {} if number is None else {_TYPE_KEY: number}
    return {"general.quantization_version": 2, **told}


def _own_blocks(ledger: Ledger) -> list[tuple[str, Encoding]]:
    """Return the weights whose codes are moved into blocks, as overrides."""
    codes = [weight for weight in ledger.weights.values() if weight.own_dtype is None]
    found: dict[str, Encoding] = {}
    for type, _ in _MOSTLY if codes else ():
        encoding = encoding_named(f"gguf-{type.lower()}")
        moved = encoding.repacks([weight for weight in codes if weight.name not in found])
        found |= {
            name: encoding
            for name, way in moved.items()
            if isinstance(way, Repack) and not way.is_cast
        }
    return [(escape(name), encoding) for name, encoding in found.items()]


def _own_float(ledger: Ledger) -> str:
    """Return the 16-bit float of a model's first matrix in one, as the converter has it; else f16.

    Scales of codes count, too.
    """
    parts = (part for weight in ledger.weights.values() for part in weight.parts)
    own = (p.dtype.name for p in parts if len(p.shape) > 1 and p.dtype.name in ("F16", "BF16"))
    return next(own, "F16").lower()


def _as_one_gguf(checkpoint: Checkpoint, seen: AsGguf) -> Checkpoint:
    """Return the checkpoint as if its files were one GGUF model; its sources stay."""
    metadata: dict[str, Any] = {
        key: typed(value) if isinstance(value, Strings) else value
        for key, value in seen.metadata.items()
    }
    shards = {}
    for name, container in checkpoint.shards.items():
        shards[name] = replace(container, id="gguf", self_contained=True, metadata=metadata)
        metadata = {}
    return replace(
        checkpoint,
        root=None,
        shards=shards,
        config={},
        quant_config={},
        sidecars=[],
        indexes=[],
        has_config=False,
        left_out=[
            *checkpoint.left_out,
            *(Dropped(name, _READ) for name in checkpoint.sidecars),
        ],
    )


# --- to a directory -------------------------------------------------------------------------------


def _is_named_directory(checkpoint: Checkpoint, request: Request) -> bool:
    if not (request.form.has_directories and request.form.is_named_directory):
        return False
    first, *_ = checkpoint.shards.values()
    if first.id != "gguf":
        return False
    from anamnesis.architectures.rows import is_known  # only here: a large table

    return is_known(first.metadata)


def _as_directory(checkpoint: Checkpoint, ledger: Ledger, request: Request) -> Seen:
    from anamnesis.architectures.from_gguf import as_hf  # only here: a large table

    first, *_ = checkpoint.shards.values()
    with _advised(_AS_FILE):
        seen = as_hf(ledger, first.metadata)
    n = len(checkpoint.shards)
    shards = {}
    for i, container in enumerate(checkpoint.shards.values(), 1):
        number = f"-{i:05d}-of-{n:05d}" if n > 1 else ""
        shards[f"{MODEL_STEM}{number}{EXTENSION}"] = replace(
            container, id="safetensors", self_contained=False, metadata={}
        )
    view = replace(
        checkpoint,
        root=Path(first.source.path or os.curdir).parent,
        shards=shards,
        config=seen.config,
        has_config=True,
        made=seen.files,
        left_out=[*checkpoint.left_out, *seen.left],
    )
    return Seen(view, seen.ledger, request, seen.names)
