"""Which program loads which encoding of which kind of model, with the proof.

A row is of some encodings, one program and one kind. `ANY` is every kind that has no row of its
own. The pages and the tests read these rows too: docs/loading.md is made of them, and
tests/convert/test_loads_table.py runs the programs for each cell that they give.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from anamnesis.schemes.libraries.stacks import OF_MIXTRAL

Outcome = Literal["loads", "otherwise", "refuses", "wrong", "unwritten"]

ANY = "any"


class Program(NamedTuple):
    """A program, and the version that was run or read; empty if none was."""

    title: str
    version: str


class Cell(NamedTuple):
    """How a program treats some encodings."""

    program: str
    encodings: tuple[str, ...]
    kind: str
    outcome: Outcome
    proof: str
    why: str = ""
    instead: str = ""
    needs: str = ""


PROGRAMS = {
    "transformers": Program("transformers", "5.23"),
    "vllm": Program("vLLM", "0.33"),
    "sglang": Program("SGLang", ""),
    "gptqmodel": Program("GPTQModel", "7.7"),
    "mlx-lm": Program("mlx-lm", "0.32"),
    "modelopt": Program("ModelOpt", "0.47"),
    "comfyui": Program("ComfyUI", ""),
    "llama.cpp": Program("llama.cpp", "0c1e570"),
    "gguf-py": Program("gguf-py", "0.19"),
    "numpy": Program("numpy.load", "2"),
    "torch": Program("torch.load", "2.13"),
}

KINDS = {
    "dense": "linear layers (Llama)",
    "tied": "a head that is tied (Qwen2)",
    "renamed-head": "a head of another name (GPT-NeoX)",
    "encoder": "an encoder, alone or with a decoder (BERT, CLIP)",
    "two-stacks": "an encoder with a decoder (Whisper)",
    "experts": "experts that programs know one by one (Mixtral, Qwen-MoE, DeepSeek)",
    "apart": "experts that only tools take apart (Qwen3-VL, Gemma 4, Granite)",
    "apart-llama4": "the same of Llama 4",
    "apart-gpt-oss": "the same of gpt-oss",
    "stacks": "experts encoded as stacks",
    "stacks-gpt-oss": "gpt-oss's experts encoded as stacks",
    "joined": "stacks of experts that files usually have one by one (Mixtral, Qwen-MoE, DeepSeek)",
    "llama4": "Llama 4, its experts left as stacks",
    "conv1d": "Conv1D (GPT-2)",
    "t5": "T5",
    "own-linear": "linear layers of a class of their own (Falcon)",
    "not-in-mlx": "models that mlx-lm has no class for (Falcon, OPT, BLOOM)",
    "act-order": "groups in act-order",
    "seeing": "a model that sees, its tower or `language_model.` encoded (LLaVA, Qwen-VL)",
    "siglip": "a SigLIP tower that is encoded (Gemma 3)",
    "oblong": "blocks that are not square (MXFP8 moved to FP8 in blocks)",
    "second-scale": "matrices with a second scale each (NVFP4 moved from other layouts)",
    "mistral": "Mistral's own names and params.json, without config.json",
    "lone": "without config.json",
    "elsewhere": "codes in another container than the encoding's own",
    "hf-names": "a GGUF with Hugging Face's names",
    "no-architecture": "a GGUF without `general.architecture`",
    "no-tokenizer": "a GGUF of a language model without its tokenizer",
    "gguf-names": "llama.cpp's names in another container",
    "bf16": "bfloat16",
    "of-diffusers": "a diffusion model by diffusers' names (Flux, SD3, SDXL, PixArt, Z-Image)",
}

PLACES = frozenset({"mistral", "lone", "elsewhere"})  # kinds by which nothing else matters any more

# Types of models whose experts transformers has as stacks, in files too: it joins no single ones.
SPLIT_BY_TOOLS = frozenset(
    {
        *("aria", "aria_text", "diffusion_gemma", "diffusion_gemma_text"),
        *("gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text"),
        *("gpt_oss", "granitemoe", "granitemoe_swa", "granitemoehybrid", "granitemoeshared"),
        *("hy_v4", "inkling_mm_model", "inkling_text", "inkling2", "inkling2_text"),
        *("llama4", "llama4_text", "mistral4", "muse_spark", "muse_spark_text"),
        *("openai_privacy_filter", "qwen3_vl_moe", "qwen3_vl_moe_text", "step3p7", "zaya"),
    }
)

# Types whose experts files have one by one; transformers makes stacks of them as it loads.
ONE_BY_ONE = OF_MIXTRAL | frozenset(
    {
        *("afmoe", "axk1", "axk2", "bailing_hybrid", "cohere2_moe", "deepseek_v2", "deepseek_v3"),
        *("deepseek_v32", "dots1", "ernie4_5_moe", "exaone_moe", "flex_olmo", "glm4_moe"),
        *("glm4_moe_lite", "glm4v_moe", "glm5_next", "glm5_next_text", "glm_moe_dsa"),
        *("hunyuan_v1_moe", "hy_v3", "jamba", "kimi_k25", "laguna", "longcat_flash", "mellum"),
        *("mimo_v2_flash", "nemotron_h", "olmoe", "qwen2_moe", "qwen3_moe", "qwen3_next"),
        *("qwen3_omni_moe", "qwen3_omni_moe_text", "qwen3_omni_moe_thinker", "solar_open"),
    }
)

_RUN = "convert/test_loads_table.py::test_transformers"
_PACKED = "convert/test_loads_packed.py::test_each_weight_is_what_is_read_here"
_MLX_RUN = "convert/test_loads_table.py::test_mlx_lm"
_LLAMA_CPP = "by source: its loader asks for these keys and names"
_COMFYUI_RUN = "convert/test_comfyui.py::test_"
_VLLM_RUN = "by hand: its config classes, run from the wheel"
_VLLM = "by source"
_NAMES = "by source: its class of each model has a list of names"
_OF_STACKS = "convert/test_loads_gptoss.py::test_stacks_in_codes_of_others"

_BLOCK = ("fp8-block", "fp8-block-ue8m0")
_CT_FP8 = ("fp8-block-ct", "fp8-channel", "fp8-tensor-ct")
_CT_SYMMETRIC = ("int4", "nvfp4", "mxfp4")
_CT_PACKED = ("int4", "int4-asym", "nvfp4", "mxfp4")  # their layers have no `weight`
_CT = (*_CT_FP8, "int8", *_CT_PACKED, "mxfp8")
_MODELOPT_FP8 = ("fp8-block-modelopt", "fp8-channel-modelopt")
_MODELOPT = ("nvfp4-modelopt", "mxfp4-modelopt", "mxfp8-modelopt", *_MODELOPT_FP8)
_BNB = ("bnb-nf4", "bnb-nf4-nested", "bnb-fp4", "bnb-fp4-nested", "bnb-int8")
_GPTQ = ("gptq-4bit", "gptq-8bit")
_PACKED_INTEGERS = (*_GPTQ, "awq-4bit")
_MLX = tuple(f"mlx-{bits}bit" for bits in (2, 3, 4, 5, 6, 8))
_MLX_FLOATS = ("mlx-mxfp4", "mlx-nvfp4", "mlx-mxfp8")
_COMFY = tuple(f"comfy-{kind}" for kind in ("fp8", "mxfp8", "nvfp4", "int8", "int8-tensor"))
_TERNARY = ("gguf-tq1_0", "gguf-tq2_0")
_GGML = ("gguf-q4_0", "gguf-q4_1", "gguf-q8_0", *_TERNARY, "gguf-mxfp4", "gguf-nvfp4")
_OF_GGUF = ("gguf", *_GGML)
_LINEAR = (*_BLOCK, *_CT, "fp8-tensor", *_MODELOPT)  # whose tools take nn.Linear alone

_DEQUANTIZE = "CompressedTensorsConfig(dequantize=True) loads it"
_NO_CONFIG = "no config.json tells its codes"
_FOLDER = "convert the model's directory"
_NO_PARAMS = "no params.json tells its codes"
_PARAMS = "Mistral's params.json does not tell these codes"
_HF_NAMES = "convert the model under Hugging Face's names, with config.json"
_APART = "it has this model's experts as stacks, and finds no single ones"
_STACKED = "fp8-block and bnb-nf4 leave them stacked"

_NO_STACKS = "it finds no stacks of experts in these codes"
_ONE_BY_ONE = "experts='split' writes single ones; gptoss-mxfp4 is for gpt-oss's"
_GPT_OSS = ("gpt-oss's stacks are not known in these codes", "gptoss-mxfp4 loads")

_OUT_OF_PLACE = "it reads these codes from safetensors alone"

# fmt: off
CELLS: tuple[Cell, ...] = (
    # --- transformers --------------------------------------------------------------------------
    Cell("transformers", ("safetensors",), ANY, "loads", _RUN),
    *(Cell("transformers", ("safetensors",), kind, "refuses",
           "convert/test_loads_table.py::test_experts_that_stay_apart", _APART,
           "it loads the model as it was before it was quantised")
      for kind in ("apart", "apart-llama4", "apart-gpt-oss")),
    Cell("transformers", ("safetensors", "torch"), "gguf-names", "refuses",
         "convert/test_loads_table.py::test_names_of_llama_cpp", "tensor names are llama.cpp's",
         "an output whose name ends in a slash (model/) has transformers' names"),
    Cell("transformers", _BLOCK, ANY, "loads", _RUN),
    Cell("transformers", ("fp8-tensor",), ANY, "loads", _RUN),
    Cell("transformers", _CT, ANY, "loads", _RUN, needs="compressed-tensors"),
    Cell("transformers", ("int4-asym",), ANY, "refuses", _RUN, "it expects no packed zero points",
         _DEQUANTIZE, needs="compressed-tensors"),
    Cell("transformers", ("fp8-block-ct",), "experts", "refuses", _RUN,
         "it unpacks experts with one scale a row or matrix, not a block",
         "fp8-block and fp8-channel load"),
    Cell("transformers", ("int8", "int4-asym", "mxfp8"), "experts", "refuses", _RUN,
         "it does not unpack experts in these codes",
         "fp8-block, fp8-channel, int4 and mxfp4 load"),
    Cell("transformers", ("nvfp4",), "experts", "wrong", _RUN, "experts lose their second scale",
         "mxfp4, int4 and fp8-channel load"),
    *(Cell("transformers", _CT, kind, "refuses", _RUN, _APART, _STACKED)
      for kind in ("apart", "apart-gpt-oss")),
    Cell("transformers", _CT, "stacks", "refuses", _OF_STACKS, _NO_STACKS, _ONE_BY_ONE),
    Cell("transformers", _BLOCK, "stacks-gpt-oss", "refuses", _OF_STACKS, *_GPT_OSS),
    Cell("transformers", _CT_SYMMETRIC, "t5", "refuses",
         _RUN, "T5's code asks layers for a weight, which packed ones lack",
         f"{_DEQUANTIZE}; so do int8, fp8-channel and bnb-nf4"),
    Cell("transformers", _CT_SYMMETRIC, "own-linear",
         "refuses", _RUN, "the model's code asks layers for a weight, which packed ones lack",
         f"{_DEQUANTIZE}; so do int8 and fp8-channel"),
    Cell("transformers", _CT_SYMMETRIC, "siglip",
         "refuses", _RUN, "SigLIP's code asks layers for a weight, which packed ones lack",
         "without the tower it loads; so do int8 and fp8-channel"),
    Cell("transformers", (*_LINEAR, *_PACKED_INTEGERS), "conv1d", "unwritten", _RUN,
         "the encoding's tools take nn.Linear alone", "bnb-nf4 and bnb-int8 load"),
    Cell("transformers", _MODELOPT, ANY, "refuses", _RUN, "it does not read ModelOpt's layout",
         "nvfp4, mxfp4 and mxfp8 load"),
    Cell("transformers", ("fp8-tensor-modelopt",), ANY, "refuses", "by source",
         "it does not read ModelOpt's layout", "fp8-tensor and fp8-tensor-ct load"),
    Cell("transformers", ("fp8-tensor-mistral",), ANY, "refuses", "by source",
         "it reads no params.json of Mistral's", _HF_NAMES),
    Cell("transformers", _BNB, ANY, "loads", _RUN, needs="bitsandbytes"),
    Cell("transformers", _BNB, "llama4", "refuses", _RUN,
         "of bitsandbytes' Llama 4 it wants single experts, and finds stacks",
         "fp8-channel and int4 load"),
    Cell("transformers", _BNB, "own-linear", "unwritten", _RUN,
         "bitsandbytes leaves this class of layers", "fp8-block and int8 load"),
    Cell("transformers", ("int8-packed",), ANY, "loads",
         "convert/test_loads_symmetric.py::test_the_model_is_what_is_remembered",
         needs="compressed-tensors"),
    Cell("transformers", ("int4", "int4-asym", "int8-packed"), "act-order", "refuses",
         "convert/test_loads_symmetric.py::test_act_order_is_refused",
         "compressed-tensors knows no groups in act-order any more", "GPTQ's own layout loads"),
    Cell("transformers", ("gptoss-mxfp4",), "stacks", "loads", _RUN),
    Cell("transformers", ("gptoss-mxfp4",), ANY, "unwritten", _RUN,
         "it is for gpt-oss's stacks of experts", "mxfp4 is for all layers"),
    Cell("transformers", (*_MLX, *_MLX_FLOATS), ANY, "refuses", _RUN,
         "it does not read MLX's layout", "int4 and mxfp4 load"),
    Cell("transformers", _PACKED_INTEGERS, ANY, "loads", _PACKED, needs="GPTQModel"),
    Cell("transformers", _PACKED_INTEGERS, "experts", "refuses",
         "by source: no converter of its stacks has packed integers", "it stacks no packed experts",
         "GPTQModel and vLLM load them; int4 loads"),
    *(Cell("transformers", _GPTQ, kind, "refuses", _RUN, why, "GPTQ of decoders loads; int8 loads")
      for kind, why in (
          ("two-stacks", "it finds one stack of blocks"),
          ("t5", "it finds one stack of blocks"),
          ("llama4", "it finds no blocks where this model has them"),
          ("own-linear", "it leaves this class of layers, and their scales over"),
          ("seeing", "it finds one stack of blocks, by names of its own"),
          ("siglip", "it finds one stack of blocks, by names of its own"),
      )),
    Cell("transformers", (*_BLOCK, "fp8-tensor"), "own-linear", "refuses", _RUN,
         "on a GPU it leaves this class of layers, and their scales over",
         "int8 and fp8-channel load"),
    # --- vLLM, SGLang ----------------------------------------------------------------------------
    Cell("vllm", ("safetensors",), ANY, "loads", _VLLM),
    Cell("vllm", (*_BLOCK, *_CT, *_PACKED_INTEGERS), ANY, "loads", _VLLM_RUN),
    Cell("vllm", (*_BLOCK, "fp8-block-ct"), "oblong", "refuses", _VLLM,
         "it groups as many activations as blocks have rows", "mxfp8 loads"),
    Cell("vllm", ("nvfp4-modelopt", "mxfp8-modelopt"), ANY, "loads", _VLLM_RUN),
    Cell("vllm", _MODELOPT_FP8, ANY, "loads", _VLLM),
    Cell("vllm", _MODELOPT_FP8, "experts", "refuses", _VLLM,
         "of experts in ModelOpt's FP8 it takes one scale each",
         "fp8-block-ct and fp8-channel load"),
    Cell("vllm", ("fp8-tensor-modelopt",), ANY, "wrong", _VLLM,
         "it wants scales of activations, and computes with what is there instead",
         "fp8-tensor-ct and fp8-channel load"),
    Cell("vllm", ("fp8-tensor-mistral",), ANY, "loads", _VLLM),
    Cell("vllm", ("fp8-tensor-mistral",), "lone", "refuses", _VLLM, _NO_PARAMS, _FOLDER),
    Cell("vllm", ("int8-packed",), ANY, "loads", _VLLM),
    Cell("vllm", ("gptoss-mxfp4",), ANY, "loads", _VLLM),
    Cell("vllm", ("mxfp4-modelopt",), ANY, "refuses", _VLLM_RUN,
         "its ModelOpt has no such quant_algo", "mxfp4 loads"),
    Cell("vllm", ("fp8-tensor",), ANY, "refuses", _VLLM_RUN,
         "its layers look for other names of scales", "fp8-tensor-ct loads"),
    Cell("vllm", _BNB, ANY, "refuses", _VLLM_RUN, "bitsandbytes is no longer among its methods",
         "int4 and fp8-channel load"),
    Cell("vllm", ("safetensors", *_CT, *_MODELOPT), "apart-gpt-oss", "refuses", _VLLM,
         "it looks for gpt-oss's experts as stacks",
         "gptoss-mxfp4 and fp8-block leave them stacked"),
    Cell("vllm", (*_CT, *_MODELOPT), "stacks", "refuses", _NAMES, _NO_STACKS, _ONE_BY_ONE),
    *(Cell(program, _BLOCK, "stacks-gpt-oss", "refuses", _NAMES, *_GPT_OSS)
      for program in ("vllm", "sglang")),
    Cell("vllm", ("safetensors",), "gguf-names", "refuses", _VLLM, "tensor names are llama.cpp's",
         ""),
    Cell("sglang", ("safetensors", *_BLOCK), ANY, "loads", "by documentation"),
    *(Cell(program, ("safetensors", *_BLOCK), "joined", "refuses", _NAMES,
           "of such a model it may look for single experts alone", "experts='split' writes these")
      for program in ("vllm", "sglang")),
    # --- who quantises ---------------------------------------------------------------------------
    Cell("gptqmodel", _PACKED_INTEGERS, ANY, "loads", _PACKED),
    Cell("mlx-lm", (*_MLX, *_MLX_FLOATS), ANY, "loads", _MLX_RUN),
    Cell("mlx-lm", (*_MLX, *_MLX_FLOATS), "encoder", "refuses", _MLX_RUN,
         "it has no class for this model"),
    Cell("mlx-lm", (*_MLX, *_MLX_FLOATS), "not-in-mlx", "refuses", _MLX_RUN,
         "it has no class for this model"),
    Cell("mlx-lm", ("mlx-nvfp4",), "second-scale", "refuses",
         "convert/test_loads_mlx.py::test_second_scales_are_of_stacks_alone",
         "it takes second scales of stacks of experts alone",
         "remember the model first, and mlx-nvfp4 quantises it without them"),
    Cell("modelopt", _MODELOPT, ANY, "loads", "convert/test_loads_experts.py::test_modelopt"),
    Cell("modelopt", ("fp8-tensor-modelopt",), ANY, "loads",
         "schemes/fp8/test_encode.py::test_modelopts_own_is_as_it_is"),
    # --- ComfyUI ---------------------------------------------------------------------------------
    Cell("comfyui", ("safetensors",), ANY, "loads", "by source"),
    Cell("comfyui", _COMFY, ANY, "loads", f"{_COMFYUI_RUN}its_loader_takes_each_encoding"),
    Cell("comfyui", _COMFY, "of-diffusers", "refuses",
         f"{_COMFYUI_RUN}it_leaves_the_scales_of_what_it_renames",
         "it renames these weights, and leaves their scales",
         "convert a file that has ComfyUI's names"),
    Cell("comfyui", ("fp8-tensor", "fp8-tensor-ct", "fp8-block", "fp8-channel"), ANY, "refuses",
         f"{_COMFYUI_RUN}it_takes_codes_of_others_for_values", "it knows no such names of scales"),
    # --- GGUF ------------------------------------------------------------------------------------
    Cell("llama.cpp", _OF_GGUF, ANY, "loads", _LLAMA_CPP),
    Cell("llama.cpp", _OF_GGUF, "hf-names", "refuses", _LLAMA_CPP,
         "tensor names and metadata are Hugging Face's",
         "convert the model's directory with its config.json, without names='keep'"),
    Cell("llama.cpp", _OF_GGUF, "no-architecture", "refuses", _LLAMA_CPP,
         "the metadata have no general.architecture",
         "convert the model's directory, of a known architecture"),
    Cell("llama.cpp", _OF_GGUF, "no-tokenizer", "refuses", _LLAMA_CPP,
         "the metadata have no tokenizer", "convert the model's directory, with its tokenizer"),
    Cell("gguf-py", ("gguf",), ANY, "loads", "convert/test_loaders.py::test_gguf_py_reads_it"),
    Cell("gguf-py", _GGML, ANY, "loads", "convert/test_repack_real.py::test_values"),
    # --- arrays ----------------------------------------------------------------------------------
    Cell("numpy", ("npz", "npy"), ANY, "loads", "convert/test_loaders.py::test_numpy_loads_it"),
    Cell("numpy", ("npz", "npy"), "bf16", "refuses", "convert/test_loaders.py::test_numpy_loads_it",
         "BF16 opens as V2, two bytes a value",
         "cast all to F32, or .view(ml_dtypes.bfloat16) makes numbers of it"),
    Cell("torch", ("torch",), ANY, "loads",
         "convert/test_loaders.py::test_torch_loads_it_and_gives_it_back"),
    # --- all together ----------------------------------------------------------------------------
    *(Cell(program, encodings, kind, "refuses", proof, why, instead)
      for kind, why, instead in (("lone", _NO_CONFIG, _FOLDER), ("mistral", _PARAMS, _HF_NAMES))
      for program, encodings, proof in (
          ("transformers", (*_LINEAR, *_BNB, "gptoss-mxfp4", *_PACKED_INTEGERS), "by source"),
          ("vllm", (*_BLOCK, *_CT, *_PACKED_INTEGERS, "gptoss-mxfp4"), "by source"),
          ("vllm", ("nvfp4-modelopt", "mxfp8-modelopt", *_MODELOPT_FP8), "by source"),
          ("gptqmodel", _PACKED_INTEGERS, "by source"),
          ("mlx-lm", (*_MLX, *_MLX_FLOATS), "by source"),
      )),
    *(Cell(program, encodings, "elsewhere", "refuses", "by source", _OUT_OF_PLACE)
      for program, encodings in (
          ("transformers", (*_LINEAR, *_BNB, "gptoss-mxfp4", *_PACKED_INTEGERS)),
          ("vllm", (*_BLOCK, *_CT, *_PACKED_INTEGERS, "gptoss-mxfp4", *_MODELOPT)),
          ("vllm", ("fp8-tensor-mistral",)),
          ("gptqmodel", _PACKED_INTEGERS),
          ("mlx-lm", (*_MLX, *_MLX_FLOATS)),
          ("comfyui", _COMFY),
      )),
)
# fmt: on
