"""A model under the names that its new container's programs know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from anamnesis.base.dropped import Dropped
from anamnesis.base.limits import Budget
from anamnesis.checkpoint.open import Checkpoint
from anamnesis.convert.ask.mix import asked_mix
from anamnesis.convert.ask.request import Request
from anamnesis.schemes.claim.ledger import Ledger

if TYPE_CHECKING:
    from anamnesis.architectures.to_gguf import AsGguf

__all__ = ["Seen", "seen_as_asked"]

_READ = "what it says is in the GGUF header"


class Seen(NamedTuple):
    """A model as it will be written, and what that makes of the request.

    Attributes
    ----------
    checkpoint : Checkpoint
    ledger : Ledger
    request : Request
    names : mapping of str to tuple of str
        Of weights that have another name, those of the weights they are made of.
    """

    checkpoint: Checkpoint
    ledger: Ledger
    request: Request
    names: Mapping[str, tuple[str, ...]]


def seen_as_asked(checkpoint: Checkpoint, ledger: Ledger, request: Request) -> Seen:
    """Return a Hugging Face directory that becomes a GGUF under llama.cpp's names, if asked for.

    All else as it is.

    Raises
    ------
    UnsupportedError
        If its architecture is not known, or a tensor is none of it.
    ParseError, LimitExceeded
        If config.json or the tokenizer is malformed, or lacks what is needed.
    """
    if not _is_renamed(checkpoint, ledger, request):
        return Seen(checkpoint, ledger, request, {})
    from anamnesis.architectures.to_gguf import as_gguf  # only here: a large table

    seen = as_gguf(checkpoint, ledger, Budget(request.limits), request.tokenizer_pre)
    if request.mix is None and request.encoding is None:
        name = _own_float(seen.ledger)
        request = replace(request, mix=asked_mix(name, {}), keep_blocks=False)
    return Seen(_as_one_gguf(checkpoint, seen), seen.ledger, request, seen.names)


def _is_renamed(checkpoint: Checkpoint, ledger: Ledger, request: Request) -> bool:
    if request.form.container != "gguf" or request.names == "keep":
        return False
    if checkpoint.root is None or not checkpoint.config.get("architectures"):
        return False
    from anamnesis.architectures.to_gguf import has_gguf_names  # only here: for a quick start

    return not has_gguf_names(ledger.weights)


def _own_float(ledger: Ledger) -> str:
    """Return the float that most values of a model are in, as a mix: f16 or bf16."""
    n_values: dict[str, int] = {}
    for weight in ledger.weights.values():
        own = weight.own_dtype
        name = "BF16" if own is None else own.name
        n_values[name] = n_values.get(name, 0) + weight.n_elements
    return "f16" if n_values.get("F16", 0) > n_values.get("BF16", 0) else "bf16"


def _as_one_gguf(checkpoint: Checkpoint, seen: AsGguf) -> Checkpoint:
    """Return the checkpoint as if its files were one GGUF model; its sources stay."""
    metadata: dict[str, Any] = seen.metadata
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
