"""Completion scripts of shells, and where each shell looks for its own."""

from __future__ import annotations

import os
from pathlib import Path

import click

_PROGRAM, _VARIABLE = "amn", "_AMN_COMPLETE"

# Where each shell looks for scripts of programs; zsh where its users let it look.
HOMES = {
    "bash": ("XDG_DATA_HOME", ".local/share", "bash-completion/completions/amn"),
    "zsh": ("ZDOTDIR", "", ".zfunc/_amn"),
    "fish": ("XDG_CONFIG_HOME", ".config", "fish/completions/amn.fish"),
}
_NEEDS = {
    "bash": "bash-completion loads it when a shell starts",
    "zsh": "~/.zshrc needs: fpath+={folder}; autoload -Uz compinit && compinit",
    "fish": "fish loads it when a shell starts",
}


def install() -> str:
    """Install the script of the user's shell; return what to do next."""
    shell = own_shell()
    variable, usual, name = HOMES[shell]
    base = Path(os.environ.get(variable) or Path.home() / usual)
    path = base / name
    if path.exists() and _VARIABLE not in path.read_text(encoding="utf-8", errors="replace"):
        raise click.UsageError(f"{path}: is another program's; amn completion {shell} prints ours")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script(shell) + "\n", encoding="utf-8")
    return f"{path}: written; {_NEEDS[shell].format(folder=path.parent)}"


def own_shell() -> str:
    """Return the name of the user's shell, from SHELL."""
    shell = os.path.basename(os.environ.get("SHELL", ""))
    if shell not in HOMES:
        known = ", ".join(HOMES)
        raise click.UsageError(f"SHELL is {shell or 'not set'}, which is none of {known}")
    return shell


def script(shell: str) -> str:
    """Return the script by which a shell completes this program's words."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    amn = click.get_current_context().find_root().command
    return kind(amn, {}, _PROGRAM, _VARIABLE).source().strip()
