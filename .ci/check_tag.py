"""Fail unless a tag names this version, and CHANGELOG.md has a section of it, with a date.

python .ci/check_tag.py v0.1.0
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
tag = sys.argv[1]
version = re.search(
    r'^__version__ = "(.*)"$', (ROOT / "anamnesis/base/version.py").read_text(), re.MULTILINE
)
assert version
problems = []
if tag != f"v{version[1]}":
    problems.append(f"the tag is {tag}, the version of the package {version[1]}")
section = rf"^## \[{re.escape(tag.removeprefix('v'))}\] - \d{{4}}-\d\d-\d\d$"
if not re.search(section, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE):
    problems.append(f"CHANGELOG.md has no section ## [{tag.removeprefix('v')}] with a date")
print("\n".join(problems))
sys.exit(1 if problems else 0)
