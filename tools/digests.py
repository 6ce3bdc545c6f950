"""Digests of what every verb writes, by which a move of code is shown to change no byte.

    ANAMNESIS_REAL=FOLDER python tools/digests.py OUT.json     records them; some minutes
    python tools/digests.py --compare OLD.json NEW.json        shows what differs, if anything does

Two commits are compared with the same tool: run by the interpreter of a worktree of the old one,
which has an environment of its own, and by that of this checkout. A line of a record is a call, and
digests of the files and of the report that it gave, or what it raised. `--only 'GLOB'` takes some
models, and where records are compared, some calls (`'*convert int4*'`). `--texts` keeps in full
what else has a digest: plans, reports, headers.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import digest_inputs as inputs
import numpy as np
from digest_arrays import array_calls

import anamnesis as an

REAL = Path(os.environ.get("ANAMNESIS_REAL") or os.devnull)
WORKERS = 2


class Record(dict[str, str]):
    """What calls gave, by the model and the call; each writes into `made`, a folder of its own."""

    def __init__(self, model: str, folder: Path, *, has_texts: bool) -> None:
        self.model, self.folder, self.made = model, folder, folder / "made"
        self.has_texts = has_texts

    def note(self, key: str, call: Callable[[], Any], *, as_text: bool = False) -> None:
        """Note what a call returns or raises, and the files that it leaves."""
        self.made.mkdir()
        try:
            text = self._lasting(_text(call()))
            text = text if as_text or self.has_texts else f"result {_digest(text.encode())}"
        except Exception as error:  # whatever is raised is to stay
            text = self._lasting(f"{type(error).__name__}: {error}")
        files = [path for path in sorted(self.made.rglob("*")) if path.is_file()]
        told = [f"{path.relative_to(self.made)} {_digest(path.read_bytes())}" for path in files]
        self[f"{self.model} | {key}"] = "; ".join([*told, text])
        shutil.rmtree(self.made)

    def _lasting(self, text: str) -> str:
        """Return a text without what no two runs have alike: folders, times."""
        text = re.sub(r"\b\d+(\.\d+)? ?(s|[kMG]B/s)\b", "SOME", text)
        text = re.sub(r'"seconds": [^,}]+', '"seconds": SOME', text)
        return text.replace(str(self.folder), "TMP").replace(str(REAL), "REAL")

    def written(self, model: an.Model, verb: str, to: str, **options: Any) -> None:
        """Note what a verb writes, and its report."""
        call = partial(getattr(model, verb), self.made / "out", to, threads=1, **options)
        self.note(_key(verb, to, options), partial(_reported, call))

    def planned(self, model: an.Model, to: str, **options: Any) -> None:
        """Note a plan."""
        self.note(_key("plan", to, options), partial(model.plan, to, threads=1, **options))


def _key(verb: str, to: str, options: Mapping[str, Any]) -> str:
    return " ".join([verb, to, *(f"{key}={value}" for key, value in options.items())])


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()[:20]


def _reported(call: Callable[[], an.Report]) -> dict[str, Any]:
    report = call()
    told = report.to_dict()
    return {key: told[key] for key in told if key not in ("seconds", "path")} | {"is": str(report)}


def _text(found: Any) -> str:
    """Return a result as text: arrays by their digests."""
    plain = _plain(found)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {_digest(value.tobytes())}"
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def of_model(record: Record, path: Path, encodings: Iterable[str]) -> None:
    """Note what every verb makes of a model."""
    record.note("parse", partial(an.parse, path))
    with suppress(an.AnamnesisError), an.parse(path) as model:
        stored = [(one.name, one.dtype.name, one.shape) for one in model.stored.values()]
        record.note("stored", partial(list, stored))
        record.note("metadata", partial(dict, model.metadata))
        record.note("problems", partial(dict, model.problems), as_text=True)
        record.note("inspect", model.inspect, as_text=True)
        record.note("inspect for people", lambda: str(model.inspect("f16")), as_text=True)
        record.note("values", model.state_dict)
        for dtype, math in product(("bf16", "f16", "f32"), ("float32", "reference")):
            record.written(model, "remember", dtype, math=math)
        record.written(model, "remember", "f16", allow_unknown=True, cast_all=True)
        for to in (*inputs.CONTAINERS, *encodings, *inputs.OTHER_WORDS):
            record.planned(model, to)
            record.written(model, "convert", to)
        for to, options in inputs.OPTIONS:
            record.written(model, "convert", to, **options)


def of_real(record: Record, name: str, encodings: Iterable[str]) -> None:
    """Note all of a real model, and of the one that it is with the config beside it."""
    of_model(record, REAL / name, encodings)
    beside = inputs.with_config(REAL / name, record.folder / "beside")
    if beside is not None:
        record.model = f"{name} with its config"
        of_model(record, beside, encodings)


def of_made(record: Record, name: str, encodings: Iterable[str]) -> None:
    """Note all of a model that has no codes; what is measured and verified, in all containers."""
    path = inputs.made_model(name, record.folder / "model")
    of_model(record, path, encodings)
    with an.parse(path) as model:
        for to in encodings:
            record.written(model, "forget", to, verify=True)
            record.planned(model, to, measure=4)
            for container in ("gguf", "npz", "pth"):
                record.written(model, "convert", f"{container}-{to}")


def of_repacks(record: Record, name: str, encodings: Iterable[str]) -> None:
    """Note what becomes of `MODEL as ENCODING`, a model quantised so, in every encoding."""
    made, _, source = name.partition(" as ")
    quantised = record.folder / "quantised"
    with suppress(an.AnamnesisError, ValueError):  # that is noted where the model is plain
        an.forget(inputs.made_model(made, record.folder / "model"), quantised, source)
    for path in (quantised, quantised / "model.safetensors") if quantised.exists() else ():
        record.model = name if path.is_dir() else f"{name}, the file"
        with an.parse(path) as model:
            record.note("inspect", model.inspect, as_text=True)
            for to in ("bf16", "gguf", *encodings):
                record.written(model, "convert", to)


def of_arrays(record: Record, *_: object) -> None:
    """Note what the functions for arrays in memory give."""
    for key, call in array_calls():
        record.note(key, call, as_text=True)


def of_commands(record: Record, name: str, _: Iterable[str]) -> None:
    """Note what commands print: of `amn` without a model, or of `amn MODEL`."""
    path = REAL / name.removeprefix("amn ")
    if name == "amn llama":
        path = inputs.made_model("llama", record.folder / "llama")
    for line in inputs.COMMANDS if name == "amn" else inputs.ON_MODELS:
        verb, *options = line.split()
        words = [verb, *([] if name == "amn" else [str(path)]), *options]
        record.note(line, partial(command, words, record.made), as_text=True)


def command(words: Iterable[str], folder: Path) -> str:
    """Run a command in a folder, and return what it prints."""
    line = [sys.executable, "-m", "anamnesis", *words]
    plain = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    ran = subprocess.run(line, cwd=folder, env=plain, capture_output=True, text=True, check=False)
    return f"{ran.stdout}{ran.stderr}exit code {ran.returncode}"


Job = tuple[Callable[[Record, str, list[str]], None], str]


def jobs(encodings: list[str]) -> Iterator[Job]:
    """Yield what notes something, and the name of the model that it does so of."""
    models = list(inputs.real_models(REAL)) if REAL.is_dir() else []
    shown = [one for one in models if any(fnmatchcase(one.name, glob) for glob in inputs.SHOWN)]
    yield from ((of_made, name) for name in inputs.MADE)
    yield from ((of_real, str(model.relative_to(REAL))) for model in models)
    yield from ((of_commands, f"amn {model.relative_to(REAL)}") for model in shown)
    yield from ((of_commands, name) for name in ("amn", "amn llama"))
    yield of_arrays, "arrays"
    plain, experts = (inputs.REPACKED, encodings), (inputs.REPACKED_EXPERTS, inputs.OF_EXPERTS)
    repacked = (*product(*plain), *product(*experts))
    yield from ((of_repacks, f"{name} as {to}") for name, to in repacked)


def done(job: Job, encodings: list[str], has_texts: bool) -> dict[str, str]:
    """Return what a job notes."""
    with tempfile.TemporaryDirectory() as folder:
        record = Record(job[1], Path(folder).resolve(), has_texts=has_texts)
        job[0](record, job[1], encodings)
    return dict(record)


def main() -> int:
    """Record, or compare two records; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path, help="where the record is written")
    parser.add_argument("--compare", action="store_true", help="two records, the older one first")
    parser.add_argument(
        "--only", default="*", metavar="GLOB", help="of models, or of calls compared"
    )
    parser.add_argument("--texts", action="store_true", help="keep in full what has digests")
    asked = parser.parse_args()
    if asked.compare:
        old, new = (json.loads(path.read_text(encoding="utf-8")) for path in asked.files)
        taken = {key for key in old | new if fnmatchcase(key, asked.only)}
        found = sorted(key for key in taken if old.get(key) != new.get(key))
        for key in found:
            print(f"{key}\n  - {old.get(key)}\n  + {new.get(key)}")
        print(f"{len(found)} of {len(taken)} calls differ")
        return int(bool(found))
    listed = command(["convert", "--list", "--json"], Path(tempfile.gettempdir()))
    targets = json.loads(listed[: listed.rindex("]") + 1])
    names = (one["name"] for one in targets if one["kind"] in ("encoding", "layout"))
    encodings = [*names, *inputs.VARIANTS]
    wanted = [job for job in jobs(encodings) if fnmatchcase(job[1], asked.only)]
    record: dict[str, str] = {}
    with ProcessPoolExecutor(WORKERS) as pool:
        for future in [pool.submit(done, job, encodings, asked.texts) for job in wanted]:
            record |= future.result()
    asked.files[0].write_text(json.dumps(record, indent=0, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{len(record)} calls of {an.__file__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
