"""Record the keys that llama.cpp's converter makes of configs: `python tools/record_hf_keys.py`.

The configs are those of published models in `tests/architectures/published.json`, where lists of
a number for each frequency have made-up ones. No weights are needed: the converter is asked for
the header only.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import ggml_c

PUBLISHED = Path(__file__).parents[1] / "tests/architectures/published.json"
RUN = """
import json, sys, tempfile
from pathlib import Path
told = json.loads(sys.stdin.read())
sys.path[:0] = [told["llama.cpp"], told["llama.cpp"] + "/gguf-py"]
import gguf, torch
from safetensors.torch import save_file
from conversion import ModelType, get_model_class
PLAIN = {bool: "bool", int: "int32", float: "float32", str: "string"}  # of items of arrays
def kind_of(value):
    if value.type == gguf.GGUFValueType.ARRAY and value.sub_type is None:
        return PLAIN[type(value.value[0])]
    return (value.sub_type or value.type).name.lower()
found = {}
for name, config in told["configs"].items():
    with tempfile.TemporaryDirectory() as there:
        root = Path(there)
        (root / "config.json").write_text(json.dumps(config))
        save_file({"model.norm.weight": torch.zeros(1)}, root / "model.safetensors")
        kind = get_model_class(config["architectures"][0])
        if hasattr(kind, "opt_num_mtp_layers"):  # for want of such tensors
            kind.no_mtp = True
        model = kind(root, gguf.LlamaFileType.ALL_F32, root / "out.gguf")
        model = getattr(model, "impl", model)
        list(model.generate_extra_tensors())
        model.set_gguf_parameters()
        keys = {key: value for shard in model.gguf_writer.kv_data for key, value in shard.items()}
        found[name] = {
            key.partition(".")[2]: [kind_of(value), value.value]
            for key, value in keys.items()
            if not key.startswith("general.")
        }
print(json.dumps(found))
"""


def recorded(configs: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the type and value of each key behind the architecture's name, of each config."""
    told = json.dumps({"llama.cpp": str(ggml_c.llama_cpp()), "configs": configs})
    command = [sys.executable, "-c", RUN]
    done = subprocess.run(command, input=told, text=True, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Record the keys of all."""
    cases = json.loads(PUBLISHED.read_text())
    keys = recorded({name: case["config"] for name, case in cases.items()})
    texts = []
    for name, case in cases.items():
        lines = (f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in keys[name].items())
        made = f' "config": {json.dumps(case["config"])},\n "keys": {{\n' + ",\n".join(lines)
        texts.append(f"{json.dumps(name)}: {{\n{made}\n }}\n}}")
    PUBLISHED.write_text("{\n" + ",\n".join(texts) + "\n}\n")


if __name__ == "__main__":
    main()
