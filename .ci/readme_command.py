"""Print the shell block of README.md that follows the comment `<!-- NAME command -->`."""

import re
import sys
from pathlib import Path

readme = Path(__file__).parents[1].joinpath("README.md").read_text(encoding="utf-8")
name = re.escape(sys.argv[1])
(block,) = re.findall(rf"<!-- {name} command -->\n+```(?:sh|bash)\n(.*?)```", readme, re.DOTALL)
print(block, end="")
