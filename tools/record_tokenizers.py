"""Write what llama.cpp's converter makes of tokenizer files: `python tools/record_tokenizers.py`.

It needs torch, transformers and sentencepiece, so its answers for the small directories of
tests/helpers/tokenizer_dirs.py are kept beside the tests that compare with them. Its digests of
pre-tokenizers go into the package, for they are what a name is found by.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import ggml_c

from helpers.tokenizer_dirs import DIRECTORIES, shown, write

PROJECT = Path(__file__).parents[1]
PROGRAM = PROJECT / "tests/helpers/reference_tokenizers.py"
OUT = PROJECT / "tests/architectures/tokenizers/recorded.json"
DIGESTS = PROJECT / "anamnesis/architectures/tokenizers/pre_digests.json"


def recorded() -> dict[str, object]:
    """Return the keys of each directory by its name."""
    with tempfile.TemporaryDirectory() as folder:
        jobs = []
        for name, directory in DIRECTORIES.items():
            root = Path(folder, name)
            write(directory, root)
            kind = directory.reference or directory.kind
            jobs.append([str(root), kind, directory.config, directory.options.get("pre")])
        told, out = Path(folder, "jobs"), Path(folder, "out")
        told.write_text(json.dumps(jobs), encoding="utf-8")
        command = [sys.executable, str(PROGRAM), str(ggml_c.llama_cpp()), str(told), str(out)]
        subprocess.run(command, check=True)
        return dict(zip(DIRECTORIES, json.loads(out.read_text(encoding="utf-8")), strict=True))


def digests() -> str:
    """Return the digests as JSON; of two names for a digest, the later one counts."""
    text = (ggml_c.llama_cpp() / "conversion/base.py").read_text(encoding="utf-8")
    row = r'if chkhsh == "([0-9a-f]{64})":\n(?:\s+#[^\n]*\n)*\s+res = "([^"]+)"'
    named = dict(re.findall(row, text))
    found = re.search(r"chktxt = ('.*')", text)
    assert found is not None
    rows = sorted(named.items(), key=lambda row: (row[1], row[0]))
    table = {"text": ast.literal_eval(found[1]), "digests": dict(rows)}
    return json.dumps(table, indent=2) + "\n"


def main() -> None:
    """Write both."""
    DIGESTS.write_text(digests(), encoding="utf-8")
    keys = recorded()
    failed = {name: told for name, told in keys.items() if isinstance(told, str)}
    assert not failed, failed
    short = {name: shown(told) for name, told in keys.items() if isinstance(told, dict)}
    rows = (f"{json.dumps(name)}: {json.dumps(told)}" for name, told in short.items())
    OUT.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
