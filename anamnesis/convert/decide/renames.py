"""A model under the names that its new container's programs know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.base.limits import Budget
from anamnesis.base.patterns import unfitting
from anamnesis.base.printable import numbered
from anamnesis.base.shard_names import numbered_names
from anamnesis.base.stored import Dropped
from anamnesis.checkpoint.file_names import CONFIG_NAME, EXTENSION, MODEL_STEM
from anamnesis.checkpoint.open import Checkpoint
from anamnesis.convert.decide.seen import Seen
from anamnesis.convert.request.request import Request, asked_mix
from anamnesis.convert.request.targets import encoding as encoding_named
from anamnesis.formats.base import CARRIED_HEADER, Container
from anamnesis.formats.gguf.read import ARCHITECTURE_KEY
from anamnesis.formats.gguf.strings import Strings
from anamnesis.formats.gguf.values import text_of, typed
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.layout import Repack
from anamnesis.schemes.detect.ledger import Ledger

if TYPE_CHECKING:
    from anamnesis.architectures.images import AsImages, Row
    from anamnesis.architectures.to_gguf import AsGguf

_ADAPTER = "adapter_config.json"  # PEFT's
# What configs of language models have beside `model_type`, one or another.
_OF_MODELS = {"num_hidden_layers", "hidden_size", "n_layer", "n_embd", "text_config"}
# Below which all tensors of a known model may lie.
_MODELS = {"model", "transformer", "gpt_neox", "bert", "roberta"}
_TOPS = _MODELS | {"language_model"}
_KEEP = "names='keep' writes Hugging Face's names, which llama.cpp does not read"
_OTHER_CONFIG = "config='FOLDER' takes the config.json of another; names='keep' checks nothing"
_AS_FILE = "names='keep', or an output that ends in .safetensors, keeps llama.cpp's names"
_NO_PLACE = "metadata that GGUF has no place for"
_READ = "what it says is in the GGUF header"
_ROUNDED = "of F32 or F64 rounded to F16 first, as ComfyUI-GGUF's converter does"
_DECODED_BYTES, _ENCODED_BYTES = 2 << 20, 4 << 20  # that a thread holds of most encodings


def seen_as_asked(checkpoint: Checkpoint, ledger: Ledger, request: Request) -> Seen:
    """Return a model under the names of what it becomes, if asked for; all else as it is.

    A Hugging Face directory that becomes a GGUF has llama.cpp's names; a GGUF that becomes a
    directory has transformers', with config.json and a tokenizer. What is dropped is called by
    either name.
    """
    checkpoint.complete()
    encodes = request.encoding or request.mix or request.overrides
    reads = checkpoint.in_flight(_ENCODED_BYTES if encodes else _DECODED_BYTES)
    request = replace(request, threads=max(request.threads, reads))
    later = unfitting(request.drop, [*ledger.weights, *ledger.problems]) if request.drop else []
    ledger = ledger.without([glob for glob in request.drop if glob not in later])
    with checkpoint.named():
        seen = _seen(checkpoint, ledger, request)
    if not later:
        return seen
    return _seen(checkpoint, ledger.dropping(seen.sources(later).__contains__), request)


def _seen(checkpoint: Checkpoint, ledger: Ledger, request: Request) -> Seen:
    if request.form.container == "gguf":
        from anamnesis.schemes.families.ggml.mixes import KEPT_OF_IMAGES

        checkpoint = _with_header(checkpoint, request)
        ledger = _as_stored(ledger, checkpoint.shapes) if checkpoint.shapes else ledger
        request = replace(request, of_images=architecture_of(checkpoint, request) in KEPT_OF_IMAGES)
    if request.names == "keep":
        return Seen(checkpoint, ledger, request, {})
    if becomes_directory(checkpoint, request):
        seen = as_directory(checkpoint, ledger, request)
    elif _is_hugging_face(checkpoint, ledger, request):
        seen = _as_gguf(checkpoint, ledger, request)
    else:
        row = None
        if request.form.container == "gguf" and architecture_of(checkpoint, request) is None:
            from anamnesis.architectures.images import row_of

            row = row_of(ledger.weights)
        if row is None:
            is_file = request.form.becomes_file(directory=checkpoint.root is not None)
            if checkpoint.is_joined and checkpoint.has_config and not is_file:
                notes = _checked_by_config(checkpoint, ledger, request)
                checkpoint = replace(checkpoint, notes=[*checkpoint.notes, *notes])
            return Seen(checkpoint, ledger, request, {})
        seen = _as_images(checkpoint, ledger, request, row)
    _check_kept(seen)
    return seen


def _with_header(checkpoint: Checkpoint, request: Request) -> Checkpoint:
    """Return a model with the header of the GGUF that it was, where safetensors carry that."""
    if not any(CARRIED_HEADER in container.metadata for container in checkpoint.shards.values()):
        return checkpoint
    from anamnesis.formats.gguf.carried import header_of

    shards: dict[str, Container] = {}
    known, said = {CARRIED_HEADER, "format"}, dict[str, None]()
    for name, container in checkpoint.shards.items():
        header = header_of(container.metadata, container.source.name, request.limits)
        said |= dict.fromkeys(container.metadata)
        known |= set(header or ())
        shards[name] = replace(container, id="gguf", self_contained=True, metadata=header or {})
    left = [Dropped(key, _NO_PLACE) for key in said if key not in known]
    return replace(checkpoint, shards=shards, left_out=[*checkpoint.left_out, *left])


def _as_stored(ledger: Ledger, names: Iterable[str]) -> Ledger:
    """Return weights in the shape that a GGUF stores, where its metadata say their own."""
    from anamnesis.architectures.operations import reshaped

    weights = dict(ledger.weights)
    for name in names:
        if name in weights and name in ledger.stored:
            weights[name] = reshaped(weights[name], name, ledger.stored[name].shape)
    return replace(ledger, weights=weights)


def _checked_by_config(checkpoint: Checkpoint, ledger: Ledger, request: Request) -> list[str]:
    """Refuse tensors that the config does not describe; note why if its model is not known."""
    from anamnesis.architectures.to_gguf import weights_as_gguf

    weights = {  # a config says nothing of buffers of integers
        name: weight
        for name, weight in ledger.weights.items()
        if weight.own_dtype is None or weight.own_dtype.kind == "float"
    }
    try:
        with _advised(_OTHER_CONFIG):
            weights_as_gguf(checkpoint, replace(ledger, weights=weights), Budget(request.limits))
    except UnsupportedError as error:
        error.remedy = _what_is_wrong(checkpoint, ledger, error)
        if error.remedy is not None:
            raise
        why = error.message.removeprefix(f"{CONFIG_NAME}: ")
        return [f"tensors are not checked against {CONFIG_NAME}: {why}"]
    return []


def _check_kept(seen: Seen) -> None:
    """Refuse to keep what is stored under another name, or as several tensors."""
    request = seen.spelt(seen.request)
    for name, weight in seen.ledger.weights.items():
        override = request.override(name)
        if override is None or override[1] is not None:
            continue
        if [part.name for part in weight.parts] != [name] or name not in seen.ledger.stored:
            raise UnsupportedError(
                f"{name!r} cannot be kept as it is stored: it has another name there, and maybe"
                " another order of rows",
                remedy="name a dtype or an encoding in place of keep; names='keep' leaves both",
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
    from anamnesis.architectures.to_gguf import as_gguf
    from anamnesis.schemes.families.ggml.mixes import COPY

    with _advised(_KEEP):
        try:
            seen = as_gguf(checkpoint, ledger, Budget(request.limits), request.tokenizer_pre)
        except (ParseError, UnsupportedError) as error:
            error.remedy = _what_is_wrong(checkpoint, ledger, error) or error.remedy
            raise
    if request.mix is None and request.encoding is None:
        request = _as_it_is(seen.ledger, ledger, request)
    elif request.mix is not None and request.mix.name == COPY:
        request = replace(request, overrides=(*request.overrides, *_own_blocks(seen.ledger)))
    if request.mix is None and request.encoding is not None:  # keys that mixes have of their own
        from anamnesis.schemes.families.ggml.header import MOSTLY
        from anamnesis.schemes.families.ggml.mixes import FILE_TYPE

        number = MOSTLY.get(request.encoding.id.removeprefix("gguf-").upper())
        seen.metadata["general.quantization_version"] = 2
        if number is not None:
            seen.metadata[FILE_TYPE] = number
    return Seen(_as_one_gguf(checkpoint, seen), seen.ledger, request, seen.names, seen.otherwise)


def _as_images(checkpoint: Checkpoint, ledger: Ledger, request: Request, row: Row) -> Seen:
    from anamnesis.architectures.images import as_images
    from anamnesis.schemes.families.ggml.mixes import COPY

    seen = as_images(ledger, row, checkpoint.shards.values(), may_round=not request.lossless)
    if request.mix is None and request.encoding is None:
        request = replace(request, mix=asked_mix(COPY, {}))
    view = _as_one_gguf(checkpoint, seen)
    if seen.n_rounded:
        view.notes.append(f"{numbered(seen.n_rounded, 'tensor')} {_ROUNDED}")
    return Seen(view, seen.ledger, replace(request, of_images=True), seen.names)


def _what_is_wrong(checkpoint: Checkpoint, ledger: Ledger, error: Exception) -> str | None:
    """Return what to do about a file that is not read, or a name that all tensors lie below."""
    for left in checkpoint.left_out:
        if left.name in str(error):
            return f"{left.name} is there, but is {left.reason}: put the file itself there"
    tops = {name.partition(".")[0] for name in ledger.weights}
    inner = {name.split(".")[1] for name in ledger.weights if "." in name}
    if (
        len(tops) > 1
        or (tops & _TOPS and not inner & _MODELS)
        or not any(repr(name) in str(error) for name in ledger.weights)
    ):
        return None
    where = ".".join(filter(None, [checkpoint.selected, tops.pop()]))
    return f"select={where!r} takes what lies below that name, and strips it"


def _is_hugging_face(checkpoint: Checkpoint, ledger: Ledger, request: Request) -> bool:
    """Whether a directory is seen as GGUF; refuse those of texts that no config.json describes."""
    if request.form.container != "gguf" or checkpoint.root is None:
        return False
    from anamnesis.architectures.to_gguf import has_gguf_names

    if has_gguf_names(ledger.weights):
        return False
    if _ADAPTER in checkpoint.sidecars and not checkpoint.has_config:
        raise UnsupportedError(
            f"{checkpoint.root}: {_ADAPTER}: an adapter is no whole model",
            remedy="merge this PEFT adapter (LoRA) into its base model first, with"
            f" merge_and_unload; {_KEEP}",
        )
    if checkpoint.is_mistral:
        raise UnsupportedError(
            f"{checkpoint.root}: is in Mistral's layout, which has no names of llama.cpp's",
            remedy=f"convert the model in transformers' layout, with config.json; {_KEEP}",
        )
    config = checkpoint.config
    is_whole = "model_type" in config and not _OF_MODELS.isdisjoint(config)
    return bool(config.get("architectures")) or is_whole


def _as_it_is(ledger: Ledger, source: Ledger, request: Request) -> Request:
    """Return a request for the float that a model has, and for the 4-bit floats that GGUF has too.

    The float is the 16-bit one of the first matrix in one, as the converter has it, where scales of
    codes count, too; else F16. What a file with 4-bit floats is the converter says by their number.
    """
    from anamnesis.schemes.families.ggml.header import MOSTLY
    from anamnesis.schemes.families.ggml.mixes import FILE_TYPE

    parts = (part for weight in source.weights.values() for part in weight.parts)
    own = (p.dtype.name for p in parts if len(p.shape) > 1 and p.dtype.name in ("F16", "BF16"))
    blocks = _own_blocks(ledger)
    types = {encoding.id.removeprefix("gguf-").upper() for _, encoding in blocks}
    told = next((number for type, number in MOSTLY.items() if type in types), None)
    given = {} if told is None else {"override_kv": {FILE_TYPE: told}}
    return replace(
        request,
        mix=asked_mix(next(own, "F16").lower(), given),
        overrides=(*request.overrides, *blocks),
        keep_blocks=False,
    )


def _own_blocks(ledger: Ledger) -> list[tuple[str, Encoding]]:
    """Return the weights whose codes are moved into blocks, as overrides."""
    from anamnesis.schemes.families.ggml.header import MOSTLY

    codes = [weight for weight in ledger.weights.values() if weight.own_dtype is None]
    found: dict[str, Encoding] = {}
    for type in MOSTLY if codes else ():
        encoding = encoding_named(f"gguf-{type.lower()}")
        moved = encoding.repacks([weight for weight in codes if weight.name not in found])
        found |= {
            name: encoding
            for name, way in moved.items()
            if isinstance(way, Repack) and not way.is_cast
        }
    return [(escape(name), encoding) for name, encoding in found.items()]


def _as_one_gguf(checkpoint: Checkpoint, seen: AsGguf | AsImages) -> Checkpoint:
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
        notes=list(checkpoint.notes),
        left_out=[
            *checkpoint.left_out,
            *(Dropped(name, _READ) for name in checkpoint.sidecars),
        ],
    )


# --- to a directory -------------------------------------------------------------------------------


def becomes_directory(checkpoint: Checkpoint, request: Request) -> bool:
    """Return whether a GGUF becomes a directory under transformers' names."""
    form = request.form
    is_asked = form.has_directories and form.is_named_directory and request.names != "keep"
    return is_asked and is_gguf_of_llama_cpp(checkpoint)


def as_directory(checkpoint: Checkpoint, ledger: Ledger, request: Request) -> Seen:
    """Return a GGUF as the directory that transformers loads."""
    from anamnesis.architectures.from_gguf import as_hf

    first, *_ = checkpoint.shards.values()
    with _advised(_AS_FILE):
        seen = as_hf(ledger, first.metadata)
    n = len(checkpoint.shards)
    names = numbered_names(MODEL_STEM, n, EXTENSION) if n > 1 else [MODEL_STEM + EXTENSION]
    shards = {
        name: replace(container, id="safetensors", self_contained=False, metadata={})
        for name, container in zip(names, checkpoint.shards.values(), strict=True)
    }
    view = replace(
        checkpoint,
        root=Path(first.source.path or first.source.name).parent,
        shards=shards,
        config=seen.config,
        has_config=True,
        made=seen.files,
        left_out=[*checkpoint.left_out, *seen.left],
    )
    return Seen(view, seen.ledger, request, seen.names)


def architecture_of(checkpoint: Checkpoint, request: Request) -> str | None:
    """Return the architecture that the header will say, as far as a GGUF or the user says it."""
    of_gguf = (c.metadata for c in checkpoint.shards.values() if c.id == "gguf")
    told = (text_of(metadata, ARCHITECTURE_KEY) for metadata in (request.metadata, *of_gguf))
    return next(filter(None, told), None)


def is_gguf_of_llama_cpp(checkpoint: Checkpoint) -> bool:
    """Return whether a model is a GGUF of those that llama.cpp runs."""
    first, *_ = checkpoint.shards.values()
    return first.id == "gguf" and is_of_llama_cpp(first.metadata, checkpoint.stored)


def is_of_llama_cpp(metadata: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Return whether a GGUF is of a model that llama.cpp runs, and not of images or the like."""
    from anamnesis.architectures.registry import is_known
    from anamnesis.architectures.to_gguf import has_gguf_names
    from anamnesis.schemes.families.ggml.mixes import KEPT_OF_IMAGES

    is_of_images = metadata.get(ARCHITECTURE_KEY) in {*KEPT_OF_IMAGES, "clip"}
    return is_known(metadata) or (has_gguf_names(names) and not is_of_images)
