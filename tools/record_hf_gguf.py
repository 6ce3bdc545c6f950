"""Record what llama.cpp's converter makes of tiny models: `python tools/record_hf_gguf.py`.

The models are those of `tests/helpers/tiny_hf.py`; what has a whole vocabulary is made but not
recorded, for no test can make it again without llama.cpp. The converter runs as it is, in one
process for all, for importing torch is most of its time; only what splits the words of a cut
vocabulary is told to it, for it knows whole ones by a hash. With names, only those are recorded;
with `--keep`, directories and files stay in that folder, each as NAME/hf and NAME/ref.gguf.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ggml_c

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from helpers import recorded_hf, tiny_hf, vocabularies

OUT = Path(__file__).parents[1] / "tests/architectures/recorded"
# Runs the converter in turn with each list of arguments.
RUN = """
import json, logging, sys, traceback
from pathlib import Path
told = json.loads(sys.stdin.read())
sys.path.insert(0, told["llama.cpp"])
import convert_hf_to_gguf as converter
from conversion.base import ModelBase, TextModel
find = TextModel.get_vocab_base_pre
for run in told["runs"]:
    TextModel.get_vocab_base_pre = lambda self, tokenizer: run["pre"] or find(self, tokenizer)
    sys.argv = ["convert_hf_to_gguf.py", *run["arguments"]]
    try:
        converter.main()
    except (Exception, SystemExit):
        Path(run["failed"]).write_text(traceback.format_exc())
    for kinds in ModelBase._model_classes.values():
        for kind in kinds.values():
            if "no_mtp" in vars(kind):
                kind.no_mtp = False
"""


def convert(names: Sequence[str], folder: Path, outtype: str = "f32") -> dict[str, str]:
    """Run the converter on NAME/hf to NAME/ref.gguf; return what it said where it failed."""
    runs = []
    for name in names:
        case = tiny_hf.CASES[name]
        there = folder / name
        failed = there / "failed"
        failed.unlink(missing_ok=True)
        more = ["--outtype", outtype, "--outfile", str(there / "ref.gguf"), *case.flags]
        runs.append(
            {
                "pre": vocabularies.CUTS[case.vocabulary].pre if is_small(case) else "",
                "arguments": [str(there / "hf"), *more],
                "failed": str(failed),
            }
        )
    told = json.dumps({"llama.cpp": str(ggml_c.llama_cpp()), "runs": runs})
    command = [sys.executable, "-c", RUN]
    done = subprocess.run(command, input=told, text=True, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found = {name: folder / name / "failed" for name in names}
    return {name: path.read_text() for name, path in found.items() if path.exists()}


def is_small(case: tiny_hf.Case) -> bool:
    """Return whether a model's vocabulary is a cut one."""
    return not case.vocabulary.startswith("whole:")


def record(name: str, made: tuple[dict[str, str | bytes], list[Any]], path: Path) -> None:
    """Write down a model and its GGUF."""
    files, tensors = made
    case = tiny_hf.CASES[name]
    cut = vocabularies.of(case.vocabulary)
    texts = {n: t for n, t in files.items() if cut.get(n) != t}
    others = {n: t if isinstance(t, bytes) else t.encode() for n, t in files.items()}
    found = {
        "llama.cpp": ggml_c.PACKAGE,
        "model": case.model,
        "note": case.note,
        "flags": list(case.flags),
        "vocabulary": case.vocabulary,
        "n_shards": case.n_shards,
        "files": texts,
        "digests": {n: recorded_hf.digest(raw) for n, raw in others.items()},
        "stored": tensors,
        **recorded_hf.described(path),
    }
    lines = [f"{json.dumps(k)}: {_text(v)}" for k, v in found.items()]
    (OUT / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _text(found: Any) -> str:
    """Return JSON with a line for each tensor and each key."""
    if isinstance(found, list) and found and isinstance(found[0], (list, tuple)):
        return "[\n" + ",\n".join(f" {json.dumps(each)}" for each in found) + "\n]"
    if isinstance(found, dict) and found:
        lines = (f" {json.dumps(k)}: {json.dumps(v)}" for k, v in found.items())
        return "{\n" + ",\n".join(lines) + "\n}"
    return json.dumps(found)


def main() -> None:
    """Make all, convert all, and record them."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("names", nargs="*")
    asked.add_argument("--keep", type=Path)
    asked.add_argument("--vocabularies", action="store_true", help="cut them anew")
    told = asked.parse_args()
    names = told.names or list(tiny_hf.CASES)
    if told.vocabularies:
        vocabularies.record(ggml_c.llama_cpp() / "models")
    with tempfile.TemporaryDirectory() as temporary:
        folder = (told.keep or Path(temporary)).absolute()
        made = {name: tiny_hf.make(name, folder / name / "hf") for name in names}
        failed = convert(names, folder)
        for name in names:
            print(name, failed.get(name, "recorded"))
            if name not in failed and is_small(tiny_hf.CASES[name]):
                record(name, made[name], folder / name / "ref.gguf")


if __name__ == "__main__":
    main()
