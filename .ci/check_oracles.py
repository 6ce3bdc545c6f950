"""Fail unless each row of the tables was compared with an oracle; takes a record of what ran.

Tests write it as they run: see tests/helpers/oracle_record.py. The scalar code of a row must have
been compared with another program, and that of each further level with it, or with such a program.
So must have been whatever can be asked for by name. And such a comparison must have failed once: of
each row and level, when a bit of what it gave was flipped.
"""

import json
import sys
from pathlib import Path

from anamnesis import _core
from anamnesis.schemes.encodings import ENCODINGS, TAKING

Rows = dict[tuple[str, str, str], set[str]]  # family, name, level: oracles
ran: Rows = {}
failed: Rows = {}  # with a bit flipped
for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines():
    told = json.loads(line)
    kept = failed if told.get("fails") else ran
    kept.setdefault((told["family"], told["name"], told["level"]), set()).add(told["oracle"])


def by_others(rows: Rows, family: str, name: str, level: str) -> set[str]:
    """Return what a row was compared with, at the scalar level by another program."""
    return rows.get((family, name, level), set()) - ({"scalar"} if level == "scalar" else set())


missing = []
for kernel in _core.kernels():
    for level in kernel.native:
        if level in _core.supported_levels():
            row = kernel.family, kernel.name, level
            said = f"{kernel.family} {kernel.name} at level {level}"
            if not by_others(ran, *row):
                missing.append(f"compared with no oracle: {said}")
            elif not by_others(failed, *row):
                missing.append(f"no comparison fails when a bit is flipped: {said}")
missing += [
    f"compared with no oracle: {n}"
    for n in (*ENCODINGS, *TAKING)
    if not ran.get(("encoding", n, ""))
]
for problem in missing:
    print(problem)
print(f"{len(ran)} rows and levels compared, with {', '.join(sorted(set().union(*ran.values())))}")
print(f"{len(failed)} of them seen to fail with a bit flipped")
sys.exit(1 if missing else 0)
