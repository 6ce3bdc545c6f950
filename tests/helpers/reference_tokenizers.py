"""llama.cpp's converter, run on tokenizer files alone: a program, for it brings its own gguf-py.

    python reference_tokenizers.py LLAMA_CPP JOBS.json OUT.json

Jobs are lists of a directory, a kind, config.json and perhaps the name of a pre-tokenizer; what
comes out for each are the `tokenizer.*` keys, in order, or the text of an error.
"""

from __future__ import annotations

import importlib
import json
import logging
import sys
from pathlib import Path
from typing import Any

CLASSES = {
    "llama": ("llama", "LlamaModel"),
    "spm": ("gemma", "Gemma3Model"),
    "gemma1": ("gemma", "GemmaModel"),
    "qwen": ("qwen", "Qwen2Model"),
    "gpt2": ("gpt2", "GPT2Model"),
    "phi3": ("phi", "Phi3MiniModel"),
    "gemma4": ("gemma", "Gemma4Model"),
    "bert": ("bert", "BertModel"),
    "t5": ("t5", "T5Model"),
    "unigram": ("bert", "XLMRobertaModel"),
    "glm4": ("glm", "Glm4Model"),
}


def main(llama_cpp: str, jobs: str, out: str) -> None:
    """Run all jobs."""
    sys.path[:0] = [f"{llama_cpp}/gguf-py", llama_cpp]
    logging.disable(logging.CRITICAL)
    told = json.loads(Path(jobs).read_text(encoding="utf-8"))
    Path(out).write_text(json.dumps([keys_of(*job) for job in told]), encoding="utf-8")


def keys_of(root: str, kind: str, config: dict[str, Any], pre: str | None = None) -> Any:
    """Return what the class of a kind writes into a GGUF."""
    import gguf

    module, name = CLASSES[kind]
    model = object.__new__(getattr(importlib.import_module(f"conversion.{module}"), name))
    model.dir_model = Path(root)
    model.hparams = {**config, **config.get("text_config", {})}
    model.gguf_writer = gguf.GGUFWriter(None, "llama")
    model.is_mistral_format = False
    model.origin_hf_arch = None
    if pre is not None:
        model.get_vocab_base_pre = lambda tokenizer: pre
    try:
        model.set_vocab()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    found = model.gguf_writer.kv_data[0]
    return {k: plain(v.value) for k, v in found.items() if k.startswith("tokenizer.")}


def plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, (bytes, bytearray)):
        return list(value)
    if isinstance(value, (list, tuple)):
        return [item.decode() if isinstance(item, bytes) else plain(item) for item in value]
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


if __name__ == "__main__":
    main(*sys.argv[1:])
