"""`amn edit`: change metadata where they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from anamnesis.base.printable import numbered, printable
from anamnesis.cli.verbs import verb

if TYPE_CHECKING:
    from anamnesis.base.limits import ParseLimits


@verb(
    "edit",
    "amn edit model.gguf --set general.name=Tiny --unset general.size_label",
    "amn edit model.gguf --set tokenizer.ggml.add_bos_token:bool=true",
    "amn edit model.safetensors --set format=pt",
)
def command(
    paths: tuple[str, ...],
    new: tuple[tuple[str, Any], ...],
    gone: tuple[str, ...],
    as_json: bool,
    limits: ParseLimits | None,
) -> None:
    """Change the metadata of files; tensors stay as they lie.

    Of GGUF and safetensors files. Where the header has room it alone is written; else the file is
    copied behind a longer one, and replaced when the copy is whole.

    Without --set and --unset, an edit that was cut short is undone.
    """
    from anamnesis.cli.inputs import finish, run_batch
    from anamnesis.editing import edit_metadata

    both = dict(new).keys() & {*gone}
    if both:
        raise click.UsageError(f"--set and --unset both name {min(both)}")

    def work(path: str) -> dict[str, Any]:
        done = edit_metadata(path, dict(new), gone, limits=limits)
        if not as_json:
            how = "in place" if done.in_place else "copied behind a longer header"
            counts = f"{numbered(done.n_set, 'key')} set, {done.n_unset:,} removed"
            print(f"{printable(path)}: {counts}, {how}")
        return {**done._asdict(), "path": path}

    finish(run_batch(paths, work, as_json=as_json))
