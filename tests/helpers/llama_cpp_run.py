"""What llama.cpp computes with a GGUF, and transformers with a directory: logits and tokens.

libllama runs in a process of its own, through the bindings of llama-cpp-python's source package. It
takes a quarter of an hour to build, so that tests use one that is there: in the folder that
ANAMNESIS_LIBLLAMA names, or where `python tools/ggml_c.py llama` builds it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import ggml_c

__all__ = ["embeddings", "logits", "needs_libllama", "nmse", "tokens", "transformers_logits"]

Floats = npt.NDArray[np.float32]


def _libllama() -> Path | None:
    told = os.environ.get("ANAMNESIS_LIBLLAMA")
    return Path(told) if told else ggml_c.built_libllama()


needs_libllama = pytest.mark.skipif(
    _libllama() is None, reason="ANAMNESIS_LIBLLAMA is not set, and no libllama is built"
)

# Float32 caches and no flash attention, so that nothing is rounded more than transformers rounds.
_RUN = """
import ctypes, json, sys, types
import numpy as np
told = json.loads(sys.stdin.read())
package = types.ModuleType("llama_cpp")
package.__path__ = [told["bindings"]]  # without what its __init__ wants
sys.modules["llama_cpp"] = package
import llama_cpp.llama_cpp as lib
lib.llama_backend_init()
how = lib.llama_model_default_params()
how.n_gpu_layers = 0
how.vocab_only = told["texts"] is not None
model = lib.llama_model_load_from_file(told["path"].encode(), how)
assert model, "it does not load"
vocab = lib.llama_model_get_vocab(model)

def tokens(text):
    raw = text.encode()
    room = (ctypes.c_int32 * (len(raw) + 16))()
    n = lib.llama_tokenize(vocab, raw, len(raw), room, len(room), told["special"], told["special"])
    assert n >= 0, "more tokens than bytes"
    return list(room[:n])

if told["texts"] is not None:
    print(json.dumps([tokens(text) for text in told["texts"]]))
    sys.exit()
ids = told["tokens"]
how = lib.llama_context_default_params()
how.n_ctx = how.n_batch = how.n_ubatch = max(256, len(ids))
how.type_k = how.type_v = lib.GGML_TYPE_F32
how.flash_attn_type = 0
how.n_threads = how.n_threads_batch = 1
how.embeddings = told["embeddings"]
how.pooling_type = lib.LLAMA_POOLING_TYPE_NONE
context = lib.llama_init_from_model(model, how)
assert context, "no context"
batch = lib.llama_batch_init(len(ids), 0, 1)
batch.n_tokens = len(ids)
for i, token in enumerate(ids):
    batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, i, 1
    batch.seq_id[i][0], batch.logits[i] = 0, 1
assert lib.llama_decode(context, batch) == 0, "it does not compute"
if told["embeddings"]:
    found, width = lib.llama_get_embeddings(context), lib.llama_model_n_embd(model)
else:
    found, width = lib.llama_get_logits(context), lib.llama_vocab_n_tokens(vocab)
np.ctypeslib.as_array(found, (len(ids) * width,)).tofile(told["out"])
"""


def logits(path: Path, ids: Sequence[int], out: Path) -> Floats:
    """Return the logits behind each token, of shape (tokens, vocabulary); `out` is a file to use.

    Raises
    ------
    RuntimeError
        If llama.cpp does not load the model, or does not compute it; with what it said.
    """
    return _computed(path, ids, out, embeddings=False)


def embeddings(path: Path, ids: Sequence[int], out: Path) -> Floats:
    """Return what a model without a head computes of each token, of shape (tokens, width)."""
    return _computed(path, ids, out, embeddings=True)


def _computed(path: Path, ids: Sequence[int], out: Path, *, embeddings: bool) -> Floats:
    _run(path, tokens=list(ids), out=str(out), texts=None, embeddings=embeddings)
    return np.fromfile(out, np.float32).reshape(len(ids), -1)


def tokens(path: Path, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
    """Return the tokens of each text, with special ones added and read from the text or without."""
    found: list[list[int]] = json.loads(_run(path, texts=list(texts), special=special))
    return found


def transformers_logits(folder: Path, ids: Sequence[int]) -> Floats:
    """Return what transformers computes in float32: logits, or embeddings without a head."""
    import torch
    import transformers

    (kind,) = json.loads((folder / "config.json").read_text())["architectures"]
    model = getattr(transformers, kind).from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    with torch.no_grad():
        found = model(torch.tensor([list(ids)]), use_cache=False)
    values = found.logits if hasattr(found, "logits") else found.last_hidden_state
    return np.asarray(values[0].numpy(), np.float32)


def nmse(found: Floats, expected: Floats) -> float:
    """Return the mean square of the difference, by that of what is expected."""
    wide = expected.astype(np.float64)
    return float(np.square(found - wide).sum() / np.square(wide).sum())


def _run(path: Path, **told: Any) -> str:
    bindings = ggml_c.llama_cpp().parents[1] / "llama_cpp"
    told = {"path": str(path), "bindings": str(bindings), **told}
    environment = {**os.environ, "LLAMA_CPP_LIB_PATH": str(_libllama())}
    environment.pop("LD_LIBRARY_PATH", None)  # other builds of ggml
    done = subprocess.run(
        [sys.executable, "-c", _RUN],
        input=json.dumps(told),
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{path}: {done.stderr[-2000:]}")
    return done.stdout
