"""The tensors of GGUFs: their shapes by keys, and the layers that have them.

llama.cpp reads a file so, and both directions are checked by it. Rows of `arch` name the tensors,
and say what differs.
"""

from __future__ import annotations

from collections.abc import Mapping

HEADS = "attention.head_count"
VOCABULARY, TYPES = "vocab", "types"  # which no key says
# What stands for the value of a key behind the architecture's name.
KEYS: Mapping[str, str] = {
    "h": "embedding_length",
    "f": "feed_forward_length",
    "context": "context_length",
    "layers": "block_count",
    "heads": HEADS,
    "kv": "attention.head_count_kv",
    "key": "attention.key_length",
    "value": "attention.value_length",
    "key_mla": "attention.key_length_mla",
    "value_mla": "attention.value_length_mla",
    "rotating": "rope.dimension_count",
    "q_rank": "attention.q_lora_rank",
    "kv_rank": "attention.kv_lora_rank",
    "experts": "expert_count",
    "fe": "expert_feed_forward_length",
    "fs": "expert_shared_feed_forward_length",
    "shared": "expert_shared_count",
    "input": "embedding_length_per_layer_input",
    "kernel": "ssm.conv_kernel",
    "state": "ssm.state_size",
    "groups": "ssm.group_count",
    "steps": "ssm.time_step_rank",
    "inner": "ssm.inner_size",
    "cache": "shortconv.l_cache",
}
# By a tensor's name without `blk.N.` and `.weight`, outermost first; `?` is any number. A bias has
# the shape of its weight without the columns.
SHAPES: Mapping[str, str] = {
    "token_embd": "vocab h",
    "token_embd_norm": "h",
    "token_types": "types h",
    "position_embd": "context h",
    "output": "vocab h",
    "output_norm": "h",
    "cls": "h h",
    "cls.output": "? h",
    **dict.fromkeys(("attn_norm", "attn_output_norm", "ffn_norm", "layer_output_norm"), "h"),
    **dict.fromkeys(("post_attention_norm", "post_ffw_norm", "post_norm"), "h"),
    **dict.fromkeys(("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"), "h"),
    "attn_q": "heads*key h",
    "attn_k": "kv*key h",
    "attn_v": "kv*value h",
    "attn_qkv": "heads*key+kv*key+kv*value h",
    "attn_output": "h heads*value",
    "attn_q_norm": "key",
    "attn_k_norm": "key",
    "attn_sinks": "heads",
    "attn_q_a": "q_rank h",
    "attn_q_a_norm": "q_rank",
    "attn_q_b": "heads*key_mla q_rank",
    "attn_kv_a_mqa": "kv_rank+rotating h",
    "attn_kv_a_norm": "kv_rank",
    "attn_k_b": "heads kv_rank key_mla-rotating",
    "attn_v_b": "heads value_mla kv_rank",
    "ffn_gate": "f h",
    "ffn_up": "f h",
    "ffn_down": "h f",
    "ffn_gate_inp": "experts h",
    "ffn_gate_inp.scale": "h",
    "ffn_gate_exps": "experts fe h",
    "ffn_up_exps": "experts fe h",
    "ffn_gate_up_exps": "experts 2*fe h",
    "ffn_down_exps": "experts h fe",
    "ffn_down_exps.scale": "experts",
    "exp_probs_b.bias": "experts",
    "ffn_gate_shexp": "fs h",
    "ffn_up_shexp": "fs h",
    "ffn_down_shexp": "h fs",
    "ffn_gate_inp_shexp": "1 h",
    "per_layer_token_embd": "vocab layers*input",
    "per_layer_model_proj": "layers*input h",
    "per_layer_proj_norm": "input",
    "inp_gate": "input h",
    "proj": "h input",
    "layer_output_scale": "1",
    "attn_gate": "inner h",
    "ssm_a": "steps",
    "ssm_alpha": "steps h",
    "ssm_beta": "steps h",
    "ssm_ba": "2*steps h",
    "ssm_conv1d": "2*groups*state+inner kernel",
    "ssm_dt.bias": "steps",
    "ssm_norm": "inner/steps",
    "ssm_out": "h inner",
    "shortconv.conv": "h cache",
    "shortconv.in_proj": "3*h h",
    "shortconv.out_proj": "h h",
    "nextn.eh_proj": "h 2*h",
    "nextn.embed_tokens": "vocab h",
    "nextn.enorm": "h",
    "nextn.hnorm": "h",
    "nextn.shared_head_head": "vocab h",
    "nextn.shared_head_norm": "h",
}
_STACKS = ("ffn_gate_exps", "ffn_up_exps", "ffn_gate_up_exps", "ffn_down_exps")
_SHARED = ("ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp", "ffn_gate_inp_shexp")
_MLA = ("attn_kv_a_mqa", "attn_kv_a_norm", "attn_k_b", "attn_v_b")
_STATES = (
    *("attn_gate", "ssm_a", "ssm_alpha", "ssm_beta", "ssm_ba", "ssm_conv1d"),
    *("ssm_dt.bias", "ssm_norm", "ssm_out"),
)
# Which layers have a tensor, or whether the file has it at all; all by default. Those with `?` may
# have it.
GROUPS: Mapping[str, str] = {
    "output": "head",
    **dict.fromkeys(("attn_q", "attn_output", "attn_q_norm", "attn_sinks", "attn_qkv"), "attends"),
    **dict.fromkeys(("attn_k", "attn_v", "attn_k_norm"), "own-keys"),
    **dict.fromkeys(("attn_q_a", "attn_q_a_norm", "attn_q_b"), "ranks"),
    **dict.fromkeys(_MLA, "attends"),
    **dict.fromkeys(("ffn_gate", "ffn_up", "ffn_down"), "dense"),
    **dict.fromkeys(("ffn_gate_inp", "ffn_gate_inp.scale", *_STACKS), "sparse"),
    **dict.fromkeys(("ffn_down_exps.scale", "exp_probs_b.bias"), "sparse"),
    **dict.fromkeys(("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"), "sparse"),
    **dict.fromkeys(_SHARED, "shared"),
    **dict.fromkeys(_STATES, "recurs"),
    **dict.fromkeys(("shortconv.conv", "shortconv.in_proj", "shortconv.out_proj"), "recurs"),
    **dict.fromkeys(("per_layer_token_embd", "per_layer_model_proj"), "inputs"),
    **dict.fromkeys(("per_layer_proj_norm", "inp_gate", "proj", "post_norm"), "inputs"),
    **dict.fromkeys(("nextn.eh_proj", "nextn.enorm", "nextn.hnorm"), "predicts"),
    **dict.fromkeys(("nextn.embed_tokens", "nextn.shared_head_head"), "predicts?"),
    "nextn.shared_head_norm": "predicts?",
    "layer_output_scale": "all?",
}
# The keys that say which layers are of a group, for errors to name.
SWITCHED: Mapping[str, str] = {
    "ranks": "attention.q_lora_rank",
    "dense": "leading_dense_block_count",
    "sparse": "leading_dense_block_count",
    "shared": "expert_shared_count",
    "own-keys": "attention.shared_kv_layers",
    "recurs": "attention.recurrent_layers",
    "inputs": "embedding_length_per_layer_input",
    "predicts": "nextn_predict_layers",
}
# Keys whose numbers are at most those of others.
AT_MOST: Mapping[str, str] = {
    "expert_used_count": "expert_count",
    "expert_group_count": "expert_count",
    "expert_group_used_count": "expert_group_count",
    "rope.dimension_count": "attention.key_length",
}
