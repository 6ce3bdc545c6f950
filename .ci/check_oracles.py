"""Fail unless each row of the tables was compared with an oracle; takes a record of what ran.

Tests write it as they run: see tests/helpers/oracle_record.py. The scalar code of a row must have
been compared with another program, and that of each further level with it, or with such a program.
So must have been whatever can be asked for by name.
"""

import json
import sys
from pathlib import Path

from anamnesis import _core
from anamnesis.schemes.encodings import ENCODINGS, TAKING

ran: dict[tuple[str, str, str], set[str]] = {}
for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines():
    told = json.loads(line)
    ran.setdefault((told["family"], told["name"], told["level"]), set()).add(told["oracle"])

missing = []
for kernel in _core.kernels():
    for level in kernel.native:
        if level in _core.supported_levels():
            compared = ran.get((kernel.family, kernel.name, level), set())
            if not (compared - {"scalar"} if level == "scalar" else compared):
                missing.append(f"{kernel.family} {kernel.name} at level {level}")
missing += [n for n in (*ENCODINGS, *TAKING) if not ran.get(("encoding", n, ""))]
for row in missing:
    print(f"compared with no oracle: {row}")
print(f"{len(ran)} rows and levels compared, with {', '.join(sorted(set().union(*ran.values())))}")
sys.exit(1 if missing else 0)
