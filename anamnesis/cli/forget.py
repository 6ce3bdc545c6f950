"""`amn forget`: quantise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from anamnesis.cli.encoding import Encode
from anamnesis.cli.encoding_options import (
    encoded_options,
    encoding_option,
    list_option,
    list_targets,
    needs,
    paths_or_list,
)
from anamnesis.cli.grouped import Command
from anamnesis.cli.options import described
from anamnesis.cli.writing import run, writes_models

if TYPE_CHECKING:
    from anamnesis.convert.ask.targets import Target


@click.command(
    "forget",
    cls=Command,
    epilog=described(
        "amn forget model-bf16.safetensors --to fp8-fine-grained",
        "amn forget Qwen3-8B/ --to int8 --exclude '*.lm_head.*' --worst",
        "amn forget -r loras/ --to fp8-tensor -o small/ --skip-existing",
        "amn forget --list",
    ),
)
@paths_or_list
@encoding_option
@list_option
@writes_models(*encoded_options(writes=True), encodes=True)
def command(paths: tuple[str, ...], to: Target | None, lists: bool, **given: Any) -> None:
    """Quantise: write weights in FP8, INT8, ...; what that takes is measured."""
    if lists:
        list_targets(to, as_json=given["as_json"], kind="encoding")
        return
    needs(paths, "to", to)
    assert to is not None
    run(Encode("forget", to, given["out"], given), paths, **given)
