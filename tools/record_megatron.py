"""Record checkpoints of Megatron's that two processes write: python tools/record_megatron.py.

It needs torch, transformers, megatron-core and megatron-bridge, the last two without what they
depend on, and no GPU. The first checkpoint has all that can be stored: values of a tensor count up
from 0. The others are tiny models of transformers', which Megatron-Bridge's own maps put into
Megatron's own model, and out of it again; what it must give back is kept as digests.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import types
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing import ShardedObject, ShardedTensor
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.transformer_config import TransformerConfig
from transformers import AutoConfig, AutoModelForCausalLM

RECORDED = Path(__file__).parents[1] / "tests/trainers/recorded"
RANKS = 2
WORDS, PADDED = 30, 32
# What each model is, and whether its layers and experts are stored one by one.
MODELS: dict[str, tuple[dict[str, Any], bool]] = {
    "llama": ({"model_type": "llama", "num_key_value_heads": 2}, False),
    "qwen2": ({"model_type": "qwen2", "tie_word_embeddings": True}, True),
    "qwen3": ({"model_type": "qwen3", "num_key_value_heads": 1, "head_dim": 6}, False),
    "qwen3_moe": ({"model_type": "qwen3_moe", "num_key_value_heads": 2, "head_dim": 2}, False),
    "qwen3_moe_apart": ({"model_type": "qwen3_moe", "num_key_value_heads": 4, "head_dim": 2}, True),
}
SIZES = {
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": WORDS,
    "max_position_embeddings": 64,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 6,
}
BRIDGES = {
    "llama": ("llama.llama_bridge", "LlamaBridge"),
    "qwen2": ("qwen.qwen2_bridge", "Qwen2Bridge"),
    "qwen3": ("qwen.qwen3_bridge", "Qwen3Bridge"),
    "qwen3_moe": ("qwen.qwen3_moe_bridge", "Qwen3MoEBridge"),
}


def counted(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """A tensor whose values count up from 0."""
    return torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)


def state(rank: int) -> dict[str, Any]:
    """What one rank saves of a model: parts, layers of a stack, replicas and others."""
    part = ShardedTensor.from_rank_offsets
    qkv = counted(2, 8, 6).chunk(RANKS, 1)
    norm = counted(6, dtype=torch.float32)
    return {
        "rows": part("embedding.weight", counted(10, 4).chunk(RANKS)[rank], (0, rank, RANKS)),
        "columns": part(
            "decoder.fc2.weight",
            counted(3, 8, dtype=torch.float32).chunk(RANKS, 1)[rank].contiguous(),
            (1, rank, RANKS),
        ),
        **{
            f"layer {i}": part(
                "decoder.layers.qkv.weight",
                qkv[rank][i].contiguous(),
                *((0, i, 2), (1, rank, RANKS)),
                prepend_axis_num=1,
            )
            for i in range(2)
        },
        "replica": part("decoder.norm.weight", norm, replica_id=rank),
        "moment": part("chained_0.optimizer.state.exp_avg.norm", norm, replica_id=rank),
        "extra": ShardedObject("decoder.fc2._extra_state", {"rank": rank}, (RANKS,), (rank,)),
        "iteration": 7,
    }


def write_state(out: Path, rank: int) -> None:
    """Write one rank's part of what can be stored."""
    dist_checkpointing.save(state(rank), str(out))
    for name, tensor in dist_checkpointing.load_plain_tensors(str(out)).items():
        if isinstance(tensor, torch.Tensor):
            assert torch.equal(tensor, counted(*tensor.shape, dtype=tensor.dtype)), name


def bridge(kind: str) -> Any:
    """Megatron-Bridge's map of a model, without the parts of the package that need a GPU."""
    package = Path(parallel_state.__file__).parents[1] / "bridge"
    for name in ("", ".models", ".models.conversion", ".models.llama", ".models.qwen"):
        made = types.ModuleType(f"megatron.bridge{name}")
        made.__path__ = [str(package.joinpath(*name.split(".")[1:]))]
        sys.modules.setdefault(made.__name__, made)
    models = "megatron.bridge.models"
    for name in ("conversion.model_bridge", "gpt_provider", "hf_pretrained.causal_lm"):
        sys.modules.setdefault(f"{models}.{name}", MagicMock())
    base = type("Base", (), {"register_bridge": staticmethod(lambda **_: lambda made: made)})
    sys.modules[f"{models}.conversion.model_bridge"].MegatronModelBridge = base  # type: ignore[attr-defined]
    module, name = BRIDGES[kind]
    return getattr(importlib.import_module(f"{models}.{module}"), name)().mapping_registry()


def megatrons_model(config: Any) -> GPTModel:
    """Megatron's own model of a config of transformers'."""
    is_moe = config.model_type == "qwen3_moe"
    has_norms = config.model_type.startswith("qwen3")
    own = TransformerConfig(
        num_layers=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        ffn_hidden_size=config.intermediate_size,
        num_attention_heads=config.num_attention_heads,
        num_query_groups=config.num_key_value_heads,
        kv_channels=getattr(config, "head_dim", None),
        normalization="RMSNorm",
        activation_func=torch.nn.functional.silu,
        gated_linear_unit=True,
        add_bias_linear=False,
        add_qkv_bias=config.model_type == "qwen2",
        qk_layernorm=has_norms,
        num_moe_experts=config.num_experts if is_moe else None,
        moe_ffn_hidden_size=config.moe_intermediate_size if is_moe else None,
        tensor_model_parallel_size=parallel_state.get_tensor_model_parallel_world_size(),
        expert_model_parallel_size=parallel_state.get_expert_model_parallel_world_size(),
        use_cpu_initialization=True,
        perform_initialization=False,
    )
    made = GPTModel(
        own,
        get_gpt_layer_local_spec(own.num_moe_experts, False, has_norms, normalization="RMSNorm"),
        vocab_size=PADDED,
        max_sequence_length=config.max_position_embeddings,
        share_embeddings_and_output_weights=config.tie_word_embeddings,
        position_embedding_type="rope",
    )
    return made.to(torch.bfloat16)


def mapped(model: GPTModel, registry: Any) -> Iterator[tuple[Any, torch.nn.Module, torch.Tensor]]:
    """Yield the map of each parameter, its module, and the parameter itself."""
    n_local = (model.config.num_moe_experts or 0) // RANKS
    first = parallel_state.get_expert_model_parallel_rank() * n_local
    for name, parameter in model.named_parameters():
        module = model.get_submodule(name.rpartition(".")[0])
        module.config = model.config
        head, is_expert, tail = name.partition("local_experts.")
        if is_expert:  # as the grouped module calls it, whose map alone joins ranks
            number, part, end = tail.split(".")
            name = f"{head}{part}.{end}{first + int(number)}"
        yield registry.megatron_to_hf_lookup(name), module, parameter


def write_model(out: Path, name: str) -> None:
    """Write one rank's part of a model, and what Megatron-Bridge makes of it again."""
    given, is_apart = MODELS[name]
    config = AutoConfig.for_model(**{**SIZES, **given})
    config.architectures = None
    torch.manual_seed(0)
    theirs = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    for parameter in theirs.parameters():  # biases and norms of one value would hide mistakes
        parameter.data = torch.randn(parameter.shape).to(torch.bfloat16)
    if dist.get_rank() == 0:
        theirs.save_pretrained(out / "config")
    dist.barrier()
    import safetensors.torch

    wanted = safetensors.torch.load_file(out / "config/model.safetensors")
    model, registry = megatrons_model(config), bridge(config.model_type)
    for to, module, parameter in mapped(model, registry):
        names = to.hf_param
        if isinstance(names, str):
            tensor = wanted[names]
            if len(tensor) == WORDS:
                tensor = torch.cat([tensor, tensor.new_zeros(PADDED - WORDS, *tensor.shape[1:])])
            parameter.data = to.hf_to_megatron(tensor, module)
        else:
            whole = {role: wanted[one] for role, one in names.items()}
            parameter.data = to.hf_to_megatron(whole, module)
    found: dict[str, torch.Tensor] = {}
    for to, module, parameter in mapped(model, registry):
        found |= to.megatron_to_hf(parameter.data, module)
    assert found.keys() == wanted.keys(), found.keys() ^ wanted.keys()
    for one, tensor in wanted.items():
        assert torch.equal(found[one][: len(tensor)], tensor), one
    metadata = {"singleton_local_shards": is_apart}
    (out / "checkpoint").mkdir(exist_ok=True)
    dist_checkpointing.save(model.sharded_state_dict(metadata=metadata), str(out / "checkpoint"))
    if dist.get_rank() == 0:
        os.unlink(out / "config/model.safetensors")
        (out / "config/generation_config.json").unlink(missing_ok=True)
        digests = {
            one: [list(tensor.shape), sha256(bytes(tensor.view(torch.uint8).numpy())).hexdigest()]
            for one, tensor in sorted(wanted.items())
        }
        (out / "digests.json").write_text(json.dumps(digests))


def write(rank: int, out: str) -> None:
    """Write all of one rank."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29634"}
    torch.cuda.synchronize = lambda *_: None  # which Megatron calls without asking for a GPU
    torch.cuda.current_device = lambda: "cpu"
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    scatter = dist.scatter  # gloo's takes what is not contiguous for contiguous, NCCL's does not
    dist.scatter = lambda out, parts, **given: scatter(
        out, parts and [part.contiguous() for part in parts], **given
    )
    root = Path(out)
    write_state(root / "megatron", rank)
    for name in MODELS:
        has_experts = "moe" in name
        parallel_state.initialize_model_parallel(
            tensor_model_parallel_size=1 if has_experts else RANKS,
            expert_model_parallel_size=RANKS if has_experts else 1,
        )
        write_model(root / "megatron_models" / name, name)
        parallel_state.destroy_model_parallel()
    dist.destroy_process_group()


def main() -> None:
    """Run both ranks, and keep what they write."""
    RECORDED.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in ("megatron", *(f"megatron_models/{one}" for one in MODELS)):
            (root / name).mkdir(parents=True)
        mp.spawn(write, args=(folder,), nprocs=RANKS)
        for kept in ("megatron", "megatron_models"):
            with zipfile.ZipFile(RECORDED / f"{kept}.zip", "w", zipfile.ZIP_DEFLATED) as file:
                for path in sorted((root / kept).rglob("*")):
                    if path.is_file():
                        file.write(path, path.relative_to(root / kept))


if __name__ == "__main__":
    main()
