"""Fail if a test was skipped that should have run; the arguments are pytest's JUnit reports.

What may be skipped: tests of real models, when there are none; what another system is for;
combinations of parameters that there are not.
"""

import os
import re
import sys
import xml.etree.ElementTree as ElementTree

ALLOWED = [
    r"only on (Windows|macOS|aarch64|NEON)",
    "root reads everything",
    r"before Python 3\.11\.4",
    r"^not a case: ",
    r"this machine has no level (avx2|avx512)$",
]
if not os.environ.get("ANAMNESIS_REAL"):
    ALLOWED += ["ANAMNESIS_REAL", "empty parameter set"]
for checkout in ("ANAMNESIS_COMFY_QUANTS", "ANAMNESIS_COMFYUI"):  # which no registry has
    if not os.environ.get(checkout):
        ALLOWED.append(f"^{checkout} ")
for large in ("ANAMNESIS_LIBLLAMA", "ANAMNESIS_GEMMA", "ANAMNESIS_AZURITE"):  # to fetch or build
    if not os.environ.get(large):
        ALLOWED.append(f"^{large} ")

unexpected = [
    f"{case.get('classname')}::{case.get('name')}: {skipped.get('message')}"
    for report in sys.argv[1:]
    for case in ElementTree.parse(report).iter("testcase")
    for skipped in case.iter("skipped")
    if skipped.get("type") != "pytest.xfail"
    and not re.search("|".join(ALLOWED), skipped.get("message") or "", re.IGNORECASE)
]
for line in unexpected:
    print(f"skipped, but should have run: {line}")
sys.exit(1 if unexpected else 0)
