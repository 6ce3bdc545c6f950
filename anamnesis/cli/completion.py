"""`amn completion`: the script by which a shell completes commands, options, targets and files."""

from __future__ import annotations

import os
from pathlib import Path

import click

from anamnesis.cli.grouped import Command
from anamnesis.cli.options import described

__all__ = ["command", "install"]

_PROGRAM, _VARIABLE = "amn", "_AMN_COMPLETE"

# Where each shell looks for scripts of programs; zsh where its users let it look.
_HOMES = {
    "bash": ("XDG_DATA_HOME", ".local/share", "bash-completion/completions/amn"),
    "zsh": ("ZDOTDIR", "", ".zfunc/_amn"),
    "fish": ("XDG_CONFIG_HOME", ".config", "fish/completions/amn.fish"),
}
_NEEDS = {
    "bash": "bash-completion loads it when a shell starts",
    "zsh": "~/.zshrc needs: fpath+={folder}; autoload -Uz compinit && compinit",
    "fish": "fish loads it when a shell starts",
}


@click.command(
    "completion",
    cls=Command,
    epilog=described(
        "amn completion bash > ~/.local/share/bash-completion/completions/amn",
        "amn completion zsh > ~/.zfunc/_amn",
        "amn completion fish | source",
    ),
)
@click.argument("shell", type=click.Choice([*_HOMES]), metavar="bash|zsh|fish", required=False)
def command(shell: str | None) -> None:
    """Print what lets a shell complete commands, options and targets.

    Without a shell it is for that of SHELL. amn --install-completion puts it where it is found.
    """
    print(_script(shell or _own_shell()))


def install() -> str:
    """Put the script of the user's shell where that looks for it; return a sentence about it.

    Raises
    ------
    click.UsageError
        If no script is known for the shell, or another program's is there.
    OSError
        If it cannot be written.
    """
    shell = _own_shell()
    variable, usual, name = _HOMES[shell]
    base = Path(os.environ.get(variable) or Path.home() / usual)
    path = base / name
    if path.exists() and _VARIABLE not in path.read_text(encoding="utf-8", errors="replace"):
        raise click.UsageError(f"{path}: is another program's; amn completion {shell} prints ours")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_script(shell) + "\n", encoding="utf-8")
    return f"{path}: written; {_NEEDS[shell].format(folder=path.parent)}"


def _own_shell() -> str:
    shell = os.path.basename(os.environ.get("SHELL", ""))
    if shell not in _HOMES:
        known = ", ".join(_HOMES)
        raise click.UsageError(f"SHELL is {shell or 'not set'}, which is none of {known}")
    return shell


def _script(shell: str) -> str:
    from click.shell_completion import get_completion_class

    from anamnesis.cli.app import cli

    kind = get_completion_class(shell)
    assert kind is not None
    return kind(cli, {}, _PROGRAM, _VARIABLE).source().strip()
