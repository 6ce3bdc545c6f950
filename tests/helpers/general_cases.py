"""Directories of all names, cards and configs, and what llama.cpp's package says of them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["CASES", "RECORDED", "Case", "by_reference", "write"]

RECORDED = Path(__file__).parents[1] / "architectures/recorded/general/keys.json"
Shapes = dict[str, tuple[int, ...]]

SMALL: Shapes = {"token_embd.weight": (512, 128), "blk.0.attn_q.weight": (128, 128)}
EXPERTS: Shapes = {
    "token_embd.weight": (32000, 4096),
    "blk.0.ffn_down_exps.weight": (8, 4096, 14336),
    "blk.0.ffn_gate_exps.bias": (8, 14336),
    "blk.0.ffn_up_exps.bias": (14336,),
}


def _of(n: int) -> Shapes:
    """Return shapes of about so many parameters."""
    return {"token_embd.weight": (n // 1000, 1000)}


@dataclass(frozen=True)
class Case:
    """A directory.

    Attributes
    ----------
    name : str
        The directory's.
    shapes : dict
        Of the GGUF's tensors.
    card, generation : str or None
        The text of README.md and of generation_config.json.
    config : dict
        config.json.
    """

    name: str
    shapes: Shapes = field(default_factory=lambda: SMALL)
    card: str | None = None
    generation: str | None = None
    config: dict[str, Any] = field(default_factory=dict)


NAMES = (
    *("Llama-2-7b-hf", "Meta-Llama-3-8B-Instruct", "Llama-3.2-1B", "Llama-3.1-405B-Instruct-FP8"),
    *("Mistral-7B-v0.1", "Mistral-7B-Instruct-v0.3", "Mixtral-8x7B-Instruct-v0.1"),
    *("Mixtral-8x22B-v0.1", "Mistral-Small-3.1-24B-Instruct-2503", "Mistral-Nemo-Instruct-2407"),
    *("Qwen2.5-0.5B", "Qwen2.5-7B-Instruct-1M", "Qwen3-8B", "Qwen3-8B-FP8", "Qwen3-30B-A3B"),
    *("Qwen3-235B-A22B-Instruct-2507", "Qwen3-Next-80B-A3B-Thinking", "Qwen1.5-MoE-A2.7B"),
    *("gemma-2-9b-it", "gemma-3-27b-it-qat-q4_0-unquantized", "gemma-3n-E4B-it", "gemma-7b"),
    *("Phi-3-mini-4k-instruct", "Phi-3-medium-128k-instruct", "Phi-3.5-mini-instruct", "phi-4"),
    *("gpt-oss-20b", "gpt-oss-120b", "DeepSeek-V3-0324", "DeepSeek-R1-Distill-Qwen-32B"),
    *("DeepSeek-V2-Lite-Chat", "DeepSeek-Coder-V2-Instruct", "GLM-4.5-Air", "Kimi-K2-Instruct"),
    *("granite-3.3-8b-instruct", "granite-3.0-1b-a400m-base", "SmolLM3-3B", "SmolLM2-135M"),
    *("OLMo-2-0425-1B", "Seed-OSS-36B-Instruct", "ERNIE-4.5-0.3B-PT", "c4ai-command-r7b-12-2024"),
    *("stablelm-2-1_6b", "stablelm-zephyr-3b", "starcoder2-15b", "LFM2-1.2B", "bloom-7b1"),
    *("bge-small-en-v1.5", "nomic-embed-text-v1.5", "TinyLlama-1.1B-Chat-v1.0", "Yi-34B-200K"),
    *("Nous-Hermes-2-Mixtral-8x7B-DPO", "zephyr-7b-beta", "WizardLM-13B-V1.2", "vicuna-7b-v1.5"),
    *("Smaug-72B-v0.1", "Hermes-3-Llama-3.1-8B", "model", "hf", "7B", "v1", "a-b-c", "Foo-large"),
    *("Foo--Bar-", "my model 7B", "Foo-XL-1B-chat-lora", "iter3-Foo", "Foo-v2-Bar-v3.1-Q4_K_M"),
    *("Foo-BF16", "Foo-1.5b-iter2-fp16", "F-5x3T-K", "größe-7b-größe", "-", "3.5-Sonett", "Foo-7k"),
    *("Foo-8\N{KELVIN SIGN}", "foo-٣b", "Snapshot-0123456789abcdef0123456789abcdef01234567"),
)
SIZES = (0, 430_000, 999_999_999, 1_000_000_001, 7_240_000_000, 46_000_000_000)

CARDS = (
    "",
    "# No front matter\n",
    "---\n---\n",
    "---\nlicense: mit\n",
    "---\r\nlicense: mit\r\n---\r\n",
    "---\nlicense: apache-2.0  # a comment\nlanguage: en\n---\nlicense: mit\n",
    "---\nlicense: other\nlicense_name: qwen\nlicense_link: https://huggingface.co/Q/L#x\n---\n",
    "---\nlicense:\n- mit\n- apache-2.0\n---\n",
    '---\nlicense: "mit"\nlicense_name: \'it\'\'s\'\nname: "A \\u00e9 \\"b\\" \\\\"\n---\n',
    "---\nlanguage:\n- en\n- no\n- 'fr'\n- \"no\"\ntags: [a, 'b c', \"d\"]\n---\n",
    "---\nlanguage: [en, zh,]\nlanguages: de\ntags:\n  - x\n  -   y z\npipeline_tag: t\n---\n",
    "---\ntags: []\nlanguage: null\nlicense: ~\n---\n",
    "---\nlanguage: no\nname: null\nlicense: Null\nauthor:\n---\n",
    "---\nbase_model: meta-llama/Llama-3.1-8B-Instruct\n---\n",
    "---\nbase_model:\n- mistralai/Mistral-7B-v0.1\n- Foo\n- ./local/x\n- a/b/c\n---\n",
    "---\nbase_model:\n- https://huggingface.co/Qwen/Qwen3-8B-Base\n- https://a.b/c\n"
    "- ssh://x\n---\n",
    "---\nbase_models: [Qwen/Qwen2-7B, google/gemma-2-9b-v2]\nbase_model_sources: x/y\n---\n",
    "---\nbase_model: null\ndatasets: null\n---\n",
    "---\nbase_model: []\n---\n",
    "---\nbase_model:\n- name: Foo\n  version: v1.0\n  organization: Bar\n"
    "  repo_url: https://x.y/z\n  other: 1\n- a/b\n---\n",
    "---\nbase_model:\n  - doi: '10.1/2'\n    uuid: abc\n    url: http://u\n"
    "    author: A. B.\n    description: d\n---\n",
    "---\ndatasets:\n- HuggingFaceFW/fineweb-edu\n- https://huggingface.co/datasets/a-v2\n---\n",
    "---\ndataset: a/b-v3\ndataset_sources: c/d\n---\n",
    "---\nmodel_name: Foo 7B\nmodel_creator: Someone\nmodel_type: llama\nmodel_version: v9\n---\n",
    "---\nname: Foo\nmodel_name: Bar\nauthor: me\nversion: v2\norganization: Org\nfinetune: Chat\n"
    "basename: Base\nsize_label: 9T\ndescription: A model, it is\nurl: http://a\ndoi: 10.1/x\n"
    "uuid: u-u\nrepo_url: http://r\n---\n",
    "---\nname:\nmodel_name: Bar\nmodel_url: http://a\nmodel_doi: 1/2\nmodel_uuid: u\n"
    "model_repo_url: http://r\nmodel_author: x\nmodel_organization: o\nmodel_finetune: f\n"
    "model_basename: b\nmodel_size_label: 1B\nmodel_description: d\n---\n",
    "---\n# a comment\nlicense: mit\n\nlanguage:\n\n- en\n# another\n- de\n\n---\n",
    "---\nextra_gated_prompt: >-\n  You agree\n  license: no\nextra_gated_fields:\n  Name: text\n"
    "  Ok:\n    type: select\n    options:\n      - a\nlicense: llama3\n---\n",
    "---\nmodel-index:\n- name: Foo\n  results:\n  - task:\n      type: x\n    metrics:\n"
    "    - type: acc\n      value: 0.5\ntags:\n- z\n---\n",
    "---\nwidget:\n- text: 'a: b'\n- messages:\n  - role: user\n    content: |-\n      hi\n"
    "license: mit\nlicense: bsd\n---\n",
    "---\ntags:\n\t- tab\nlicense: mit\n---\n",
    "---\nlicense : mit\n'language' : en\n\"tags\":\n- a\n---\n",
    "---\nlicense: a:b\nname: x#y\nauthor: 'a' # c\nversion: 1.0.0\n---\n",
    "--- \nlicense: mit\n---\n",
    "\n---\nlicense: mit\n---\n",
    "\ufeff---\nlicense: mit\n---\n",
    "---\nname: ''\nlicense: ''\ntags: ['']\n---\n",
    "---\nlicense: mit\u2028language: en\n---\n",
)
GENERATIONS = (
    "{}",
    "not JSON",
    '{"temperature": 0.7, "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.05}',
    '{"temperature": null, "top_k": 0, "top_p": 1, "min_p": 0.0}',
    '{"penalty_repeat": null, "repetition_penalty": 1.1, "penalty_last_n": 64, "mirostat": 2}',
    '{"sequence": "k;p", "xtc_probability": 0.1, "xtc_threshold": 0.2, "mirostat_tau": 5.0,'
    ' "mirostat_eta": 0.1, "penalty_repeat": 1.2}',
)
PATHS = (
    *("meta-llama/Llama-2-7b-hf", "Llama-3-8B", "/home/x/y/model", "./Foo-7B-v1", "", "a/", "/b"),
    *("../Foo-7B", "Some model", "Org/A-B-C"),
)

CASES = [
    *(Case(name, _of(SIZES[i % len(SIZES)])) for i, name in enumerate(NAMES)),
    *(Case(name, _of(7_000_000_000)) for name in ("Yi-34B-200K", "Foo-7B-128k", "Foo-1B-chat")),
    *(Case("Tiny-1B", card=card) for card in CARDS),
    *(Case("Tiny-1B", generation=text) for text in GENERATIONS),
    *(Case("dir-v1", config={"_name_or_path": path}) for path in PATHS),
    Case("dir", EXPERTS),
    Case("dir", {}, config={"_name_or_path": None}),
    Case("Foo", {"token_embd.weight": (1000, 1000), "output.weight": (9, 1)}),
    Case("Foo", {"token_embd.weight": (9, 1)}),
    Case("Qwen3-8B", _of(8_000_000_000), CARDS[13], GENERATIONS[2], {"_name_or_path": "Q/R-8B"}),
]

# Runs llama.cpp's package over directories; the lines about sizes are those of its converter.
_RUN = """
import json, sys
from pathlib import Path
import numpy as np
sys.path.insert(0, sys.argv[1])
import gguf
found = []
for folder, shapes in json.loads(sys.stdin.read()):
    writer = gguf.GGUFWriter(None, "llama")
    for name, shape in shapes.items():
        writer.add_tensor_info(name, shape, np.dtype(np.float32), 4 * int(np.prod(shape)))
    total, shared, expert, count = writer.get_total_parameter_count()
    told = gguf.Metadata.load(None, Path(folder), None, total)
    if told.size_label is None and total > 0:
        told.size_label = gguf.size_label(total, shared, expert, count)
    told.set_gguf_meta_model(writer)
    keys = {k: v for k, v in writer.kv_data[0].items() if k != "general.architecture"}
    found.append([[k, v.type.name.lower(), v.value] for k, v in keys.items()])
print(json.dumps(found))
"""


def write(case: Case, folder: Path) -> Path:
    """Write a directory without weights, in a folder of its own."""
    root = folder / case.name
    root.mkdir(parents=True)
    (root / "config.json").write_text(json.dumps(case.config))
    if case.card is not None:
        (root / "README.md").write_bytes(case.card.encode())
    if case.generation is not None:
        (root / "generation_config.json").write_text(case.generation)
    return root


def by_reference(llama_cpp: Path, roots: list[Path]) -> list[list[Any]]:
    """Return, for each case, key, type and value as llama.cpp's package writes them."""
    told = [(str(root), case.shapes) for root, case in zip(roots, CASES, strict=True)]
    done = subprocess.run(
        [sys.executable, "-c", _RUN, str(llama_cpp / "gguf-py")],
        input=json.dumps(told),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: list[list[Any]] = json.loads(done.stdout)
    return found
