"""`amn help`: the help that --help shows."""

from __future__ import annotations

import click

from anamnesis.cli.verbs import verb


@verb("help", "amn help", "amn help remember")
@click.argument("name", metavar="[COMMAND]", required=False)
@click.pass_context
def command(ctx: click.Context, name: str | None) -> None:
    """Show the help of a command, or of all."""
    parent = ctx.parent
    assert parent is not None
    if name is None:
        print(parent.get_help())
        return
    group = parent.command
    assert isinstance(group, click.Group)
    found = group.get_command(parent, name)
    if found is None:
        from anamnesis.cli.app import no_such_command  # which imports this

        raise no_such_command(name, parent)
    with click.Context(found, info_name=found.name, parent=parent) as of:
        print(found.get_help(of))
