"""`amn completion`: the script by which a shell completes `amn`."""

from __future__ import annotations

import click

from anamnesis.cli.options import verb
from anamnesis.cli.shells import HOMES, own_shell, script


@verb(
    "completion",
    "amn completion bash > ~/.local/share/bash-completion/completions/amn",
    "amn completion zsh > ~/.zfunc/_amn",
    "amn completion fish | source",
)
@click.argument("shell", type=click.Choice([*HOMES]), metavar="bash|zsh|fish", required=False)
def command(shell: str | None) -> None:
    """Print what lets a shell complete commands, options and targets.

    Without a shell it is for that of SHELL. amn --install-completion puts it where it is found.
    """
    print(script(shell or own_shell()))
