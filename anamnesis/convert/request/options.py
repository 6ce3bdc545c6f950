"""The table of all options: of commands, of functions in Python, and of recipes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from anamnesis.base.plain_json import json_table
from anamnesis.convert.request.kinds import Kind, kind_of

# What takes an option in Python: `Model.remember` and those that take all of its options, ...
Call = Literal["parse", "limits", "select", "remember", "convert", "mix", "fit", ""]


class Option(NamedTuple):
    """An option of commands, functions and recipes."""

    flags: str
    kind: Kind
    verbs: tuple[str, ...]
    group: str
    help: str
    brief: str | None = None  # the help of -h, if that shows it; empty if it is that of --help
    dest: str = ""  # its name in Python, if it is not the last of the flags
    call: Call = ""
    recipe: Literal["", "key", "repeated"] = ""  # repeated in recipes that `fit` writes
    default: Any = None
    only: Literal["", "gguf", "encoding"] = ""  # what else the output must be
    quiet: str = ""  # other flags, not in help, where they are no options of their own
    usual: tuple[str, ...] = ()  # the verbs whose -h shows it, if not all
    hidden: bool = False

    @property
    def flag(self) -> str:
        return self.flags.split()[-1].partition("/")[0]

    @property
    def name(self) -> str:
        return self.dest or self.flag.strip("-").replace("-", "_")

    @property
    def key(self) -> str:
        return "tensors" if self.name == "overrides" else self.name.replace("_", "-")

    def check(self, value: Any) -> None:
        """Refuse a wrong argument in Python."""
        if self.kind.check is not None and (value is not None or self.default is not None):
            self.kind.check(self.name, value)


_TABLE: Mapping[str, Any] = json_table(__file__)
# A command that has the options of another, and some of its own.
_LIKE = {"merge": "convert"}


def _verbs(text: str) -> tuple[str, ...]:
    """Return verbs, of which a word in capitals stands for several."""
    several: Mapping[str, str] = _TABLE["verbs"]
    each = (_verbs(several[one]) if one in several else (one,) for one in text.split())
    return tuple(verb for some in each for verb in some)


def _option(row: Mapping[str, Any]) -> Option:
    own = {name: value for name, value in row.items() if name in Option._fields}
    own |= {name: _verbs(row[name]) for name in ("verbs", "usual") if name in row}
    return Option(**{**own, "kind": kind_of(row)})


# In each group in the order of help.
OPTIONS = tuple(map(_option, _TABLE["options"]))


def options_of(verb: str, *calls: Call) -> dict[str, Option]:
    """Return the options of a verb by their names; of those, the ones that some calls take."""
    return {row.name: row for row in rows_of(verb) if not calls or row.call in calls}


def rows_of(verb: str) -> list[Option]:
    """Return the rows of a verb; what it has of its own comes first."""
    own = [row for row in OPTIONS if verb in row.verbs]
    names = {row.name for row in own}
    like = [row for row in OPTIONS if _LIKE.get(verb) in row.verbs and row.name not in names]
    return own + like


def flag_of(name: str) -> str | None:
    """Return the flag of an option by its name in Python; None if no command has it."""
    return next((o.flag for o in OPTIONS if o.call and o.name == name), None)
