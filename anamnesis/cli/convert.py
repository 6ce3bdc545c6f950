"""`amn convert`: write another container, another encoding, or both."""

from __future__ import annotations

from typing import Any

import click

from anamnesis.cli.encoding import Encode
from anamnesis.cli.encoding_options import (
    encoded_options,
    list_option,
    list_targets,
    needs,
    paths_or_list,
    target_option,
)
from anamnesis.cli.options import described
from anamnesis.cli.writing import run, writes_models

__all__ = ["command"]


@click.command(
    "convert",
    epilog=described(
        "amn convert model.pth -o model.safetensors",
        "amn convert model-fp8.safetensors --to gguf-f16 --gguf-kv general.name=tiny",
        "amn convert Qwen3-8B/ --to fp8-block --tensor '*.mlp.*=fp8-channel'",
        "amn convert --list",
    ),
)
@paths_or_list
@target_option
@list_option
@writes_models(*encoded_options(writes=True), chooses=False)
def command(paths: tuple[str, ...], to: str | None, lists: bool, **given: Any) -> None:
    """Write another container, another encoding, or both.

    Without --to, the extension of OUT says which container.
    """
    if lists:
        list_targets(as_json=given["as_json"])
        return
    to = to or _container_of(given["out"])
    needs(paths, "to", to)
    run(Encode("convert", str(to), given["out"], given), paths, **given)


def _container_of(out: str | None) -> str | None:
    """Return the container that the output's name says."""
    from anamnesis.formats.writers import written_as

    return None if out is None else written_as(out)
