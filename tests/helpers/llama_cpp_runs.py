"""llama.cpp runs a GGUF, in a process of its own: logits of tokens, and tokens of texts.

Its library takes a quarter of an hour to build, so that tests use one that is there: in the folder
that ANAMNESIS_LIBLLAMA names, or where `ggml_c.libllama()` built it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import ggml_c
import numpy as np
import numpy.typing as npt
import pytest

__all__ = ["TOKENS", "logits", "needs_libllama", "nmse", "tokens"]

TOKENS = [(i * 37 + 11) % 500 + 3 for i in range(100)]
Floats = npt.NDArray[np.float32]


def _folder() -> Path | None:
    told = os.environ.get("ANAMNESIS_LIBLLAMA")
    return Path(told) if told else ggml_c.built_libllama()


needs_libllama = pytest.mark.skipif(
    _folder() is None, reason="ANAMNESIS_LIBLLAMA is not set, and tools/ggml_c.py has built none"
)

# llama-cpp-python's own declarations; its package imports more than they need.
_RUN = """
import ctypes, json, sys, types
import numpy as np
told = json.loads(sys.stdin.read())
package = types.ModuleType("llama_cpp")
package.__path__ = [told["package"]]
sys.modules["llama_cpp"] = package
import llama_cpp.llama_cpp as lib
quiet = lib.llama_log_callback(lambda level, text, data: None)
lib.llama_log_set(quiet, None)
lib.llama_backend_init()
setting = lib.llama_model_default_params()
setting.vocab_only = "texts" in told
setting.use_extra_bufts = False
model = lib.llama_model_load_from_file(told["path"].encode(), setting)
assert model, told["path"]
vocabulary = lib.llama_model_get_vocab(model)
if "texts" in told:
    found = []
    for text in told["texts"]:
        raw = text.encode()
        out = (lib.llama_token * (len(raw) + 16))()
        n = lib.llama_tokenize(vocabulary, raw, len(raw), out, len(out), told["special"], True)
        found.append(list(out[:n]))
    json.dump(found, sys.stdout)
    sys.exit()
tokens = told["tokens"]
setting = lib.llama_context_default_params()
setting.n_ctx = setting.n_batch = setting.n_ubatch = max(len(tokens), 32)
setting.n_threads = setting.n_threads_batch = 1
setting.flash_attn_type = 0
setting.type_k = setting.type_v = 0
context = lib.llama_init_from_model(model, setting)
batch = lib.llama_batch_init(len(tokens), 0, 1)
batch.n_tokens = len(tokens)
for i, token in enumerate(tokens):
    batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, True
    batch.seq_id[i][0] = 0
assert lib.llama_decode(context, batch) == 0
n = lib.llama_vocab_n_tokens(vocabulary)
raw = lib.llama_get_logits(context)
np.save(told["out"], np.ctypeslib.as_array(raw, (len(tokens), n)))
"""


def _run(told: dict[str, object]) -> str:
    package = ggml_c.llama_cpp().parents[1] / "llama_cpp"
    env = {**os.environ, "LLAMA_CPP_LIB_PATH": str(_folder()), "LD_LIBRARY_PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", _RUN],
        input=json.dumps({**told, "package": str(package)}),
        env=env,
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def logits(path: Path, tokens: Sequence[int] = TOKENS) -> Floats:
    """Return the logits of tokens, [tokens, vocabulary]; keys and values are kept in float32."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "logits.npy"
        _run({"path": str(path), "tokens": list(tokens), "out": str(out)})
        found: Floats = np.load(out)
    return found


def tokens(path: Path, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
    """Return the tokens of texts, those that begin and end with them if `special`."""
    found: list[list[int]] = json.loads(
        _run({"path": str(path), "texts": list(texts), "special": special})
    )
    return found


def nmse(found: Floats, expected: Floats) -> float:
    """Return the mean squared error over the mean square of what is expected."""
    difference = found.astype(np.float64) - expected
    return float((difference**2).sum() / (expected.astype(np.float64) ** 2).sum())
