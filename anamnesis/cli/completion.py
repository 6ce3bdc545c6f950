"""`amn completion`: the script by which a shell completes `amn`."""

from __future__ import annotations

import click

from anamnesis.cli.completion_scripts import HOMES, own_shell, script
from anamnesis.cli.verbs import verb


@verb(
    "completion",
    "amn completion bash > ~/.local/share/bash-completion/completions/amn",
    "amn completion zsh > ~/.zfunc/_amn",
    "amn completion fish | source",
)
@click.argument("shell", type=click.Choice([*HOMES]), metavar="bash|zsh|fish", required=False)
def command(shell: str | None) -> None:
    """Print the script by which a shell completes words of amn.

    By default the shell is that of SHELL. amn --install-completion installs the script.
    """
    print(script(shell or own_shell()))
