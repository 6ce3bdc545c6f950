"""`amn convert`: write another container, another encoding, or both."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from anamnesis.cli.encoding import Encode, list_targets
from anamnesis.cli.places import asked_for
from anamnesis.cli.streams import is_stdout
from anamnesis.cli.verbs import needs, verb
from anamnesis.cli.writing import run
from anamnesis.formats.written import WRITERS

if TYPE_CHECKING:
    from anamnesis.convert.request.targets import Target


@verb(
    "convert",
    "amn convert model.pth model.safetensors",
    "amn convert model-fp8.safetensors --to gguf-f16 --gguf-kv general.name=tiny",
    "amn convert Qwen3-8B-FP8/ --to Q4_K_M",
    "amn convert model.gguf model/",
    "amn convert Qwen3-8B/ --to Q4_K_M --tensor '*.down_proj.*=q8_0'",
    "amn convert sd.ckpt --to f16 --select state_dict --drop 'model_ema.*'",
    "amn convert --list",
)
def command(paths: tuple[str, ...], to: Target | None, lists: bool, **given: Any) -> None:
    """Write another container, another encoding, or both.

    Without --to, the ending of OUT says which container; a GGUF without one becomes a directory.
    """
    if lists:
        list_targets(to, as_json=given["as_json"])
        return
    to = asked_for(paths, to, given["out"])
    needs(paths, "to", to, None if to else _why_none(given["out"]))
    assert to is not None
    run(Encode("convert", to, given["out"], given), paths, **given)


def _why_none(out: str | None) -> str:
    """Return why there is no target: the output's extension names no container."""
    if out is None or is_stdout(out):
        return "Name an output or a target: amn convert MODEL OUT.gguf, amn convert MODEL Q8_0"
    *endings, last = [ending for written in WRITERS.values() for ending in written.endings]
    ending = os.path.splitext(out)[1]
    return f"Cannot tell the format from {ending or out}; use {', '.join(endings)}, {last}, or --to"
