"""`amn forget`: quantise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anamnesis.cli.encoding import Encode, list_targets
from anamnesis.cli.verbs import needs, verb
from anamnesis.cli.writing import run

if TYPE_CHECKING:
    from anamnesis.convert.request.targets import Target

_WHICH = "Name a type, such as Q4_K_M, fp8-block or bnb-nf4: amn quantize IN TYPE [OUT]"


@verb(
    "forget",
    "amn quantize Qwen3-8B/ Q4_K_M",
    "amn forget model-bf16.safetensors --to fp8-fine-grained",
    "amn forget Qwen3-8B/ --to int8 --exclude '*lm_head*' --worst",
    "amn forget -r loras/ --to fp8-tensor -o small/ --skip-existing",
    "amn forget --list",
)
def command(paths: tuple[str, ...], to: Target | None, lists: bool, **given: Any) -> None:
    """Quantise: write weights in FP8, INT8, ...; the loss is measured."""
    if lists:
        list_targets(to, as_json=given["as_json"], kind="encoding")
        return
    needs(paths, "to", to, _WHICH)
    assert to is not None
    run(Encode("forget", to, given["out"], given), paths, **given)
