"""Record what llama.cpp's converter makes of tiny models: `python tools/record_hf_gguf.py`.

The models are those of `tests/helpers/tiny_hf.py`. The converter runs as it is, in one process for
all, for importing torch is most of its time; only what splits the words of a cut vocabulary is
told to it, for it knows whole ones by a hash. With names, only those are recorded; with `--keep`,
directories and files stay in that folder, each as NAME/hf and NAME/ref.gguf.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ggml_c
import gguf

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from helpers import tiny_hf, vocabularies

OUT = Path(__file__).parents[1] / "tests/architectures/recorded"
# Runs the converter in turn with each list of arguments.
RUN = """
import json, logging, sys, traceback
from pathlib import Path
told = json.loads(sys.stdin.read())
sys.path.insert(0, told["llama.cpp"])
import convert_hf_to_gguf as converter
from conversion.base import TextModel
for run in told["runs"]:
    if run["pre"]:
        TextModel.get_vocab_base_pre = lambda self, tokenizer: run["pre"]
    sys.argv = ["convert_hf_to_gguf.py", *run["arguments"]]
    try:
        converter.main()
    except (Exception, SystemExit):
        Path(run["failed"]).write_text(traceback.format_exc())
    from conversion.base import ModelBase
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
                "pre": vocabularies.CUTS[case.vocabulary].pre,
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


def digest(raw: bytes) -> str:
    """Return what is recorded of bytes."""
    return hashlib.sha256(raw).hexdigest()


def value(field: gguf.ReaderField) -> dict[str, Any]:
    """Return a key's type and value; of a long array how long it is, and its digest as JSON."""
    found: dict[str, Any] = {"type": field.types[0].name.lower()}
    content = field.contents()
    if field.types[0] == gguf.GGUFValueType.ARRAY:
        found["of"] = field.types[-1].name.lower()
        if len(content) > 64:
            raw = json.dumps(content, ensure_ascii=False).encode()
            return {**found, "length": len(content), "sha256": digest(raw)}
    return {**found, "value": content}


def described(path: Path) -> dict[str, Any]:
    """Return keys and tensors of a GGUF file."""
    read = gguf.GGUFReader(path)
    keys = {n: value(field) for n, field in read.fields.items() if not n.startswith("GGUF.")}
    tensors = {
        t.name: [t.tensor_type.name, [int(n) for n in t.shape[::-1]], digest(t.data.tobytes())]
        for t in read.tensors
    }
    return {"keys": keys, "tensors": tensors}


def record(name: str, made: tuple[dict[str, str | bytes], list[Any]], path: Path) -> None:
    """Write down a model and its GGUF."""
    files, tensors = made
    case = tiny_hf.CASES[name]
    texts = {n: t for n, t in files.items() if n in ("config.json", "generation_config.json")}
    others = {n: t if isinstance(t, bytes) else t.encode() for n, t in files.items()}
    found = {
        "llama.cpp": ggml_c.PACKAGE,
        "model": case.model,
        "note": case.note,
        "flags": list(case.flags),
        "vocabulary": case.vocabulary,
        "n_shards": case.n_shards,
        "files": texts,
        "digests": {n: digest(raw) for n, raw in others.items()},
        "stored": tensors,
        **described(path),
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
    told = asked.parse_args()
    names = told.names or list(tiny_hf.CASES)
    vocabularies.record(ggml_c.llama_cpp() / "models")
    with tempfile.TemporaryDirectory() as temporary:
        folder = (told.keep or Path(temporary)).absolute()
        made = {name: tiny_hf.make(name, folder / name / "hf") for name in names}
        failed = convert(names, folder)
        for name in names:
            print(name, failed.get(name, "recorded"))
            if name not in failed:
                record(name, made[name], folder / name / "ref.gguf")


if __name__ == "__main__":
    main()
