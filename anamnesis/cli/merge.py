"""`amn merge`: a model with what adapters of low rank add to its weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from anamnesis.cli.encoding import Encode
from anamnesis.cli.places import asked_for
from anamnesis.cli.verbs import needs, verb
from anamnesis.cli.writing import run

if TYPE_CHECKING:
    from anamnesis.convert.request.targets import Target


@verb(
    "merge",
    "amn merge Qwen3-8B/ adapter/ -o Qwen3-8B-tuned/",
    "amn merge Qwen3-8B-FP8/ adapter/ --to Q4_K_M -o tuned.gguf",
    "amn merge sd.safetensors style.safetensors --scale 0.7 -o out.safetensors",
)
def command(paths: tuple[str, ...], to: Target | None, lists: bool, **given: Any) -> None:
    """Add low-rank adapters (LoRA) to the weights of a model.

    The first PATH is the model, the others are adapters: PEFT or mlx-lm folders, or files.
    """
    from anamnesis.convert.request.targets import target

    needs(paths, "out", given["out"], None)
    base, *adapters = paths
    if not adapters:
        raise click.UsageError("takes a model and its adapters: amn merge MODEL ADAPTER -o OUT")
    scales = given.pop("scale") or (1.0,)
    if len(scales) not in (1, len(adapters)):
        raise click.UsageError(f"--scale: {len(scales)} numbers for {len(adapters)} adapters")
    each = scales if len(scales) > 1 else scales * len(adapters)
    to = asked_for((base,), to, given["out"]) or target("safetensors")
    given["lora"] = tuple(zip(adapters, each, strict=True))
    run(Encode("convert", to, given["out"], given), (base,), **given)
