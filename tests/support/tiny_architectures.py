"""Small configs of the architectures of mlx-lm that ``tiny_models.FAMILIES`` does not have.

All of them are as wide as the largest quantization group, so that every format packs most of
their weights. Sizes differ within a config where an architecture tells them apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_BASE: dict[str, Any] = {
    "hidden_size": 128,
    "num_hidden_layers": 3,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "rms_norm_eps": 1e-5,
    "layer_norm_eps": 1e-5,
    "layer_norm_epsilon": 1e-5,
    "norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "use_bias": False,
}
_EXPERTS: dict[str, Any] = {
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 128,
    "norm_topk_prob": True,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.5,
}
_SHARED = {"n_shared_experts": 1, "num_shared_experts": 1, "shared_expert_intermediate_size": 128}
# Multi-head latent attention.
_LATENT: dict[str, Any] = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 32,
    "q_lora_rank": 64,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 32,
    "v_head_dim": 32,
}
_YARN = {
    "type": "yarn",
    "rope_type": "yarn",
    "factor": 4.0,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 128,
}
_INDEX = {"index_n_heads": 2, "index_head_dim": 32, "index_topk": 8}
_LINEAR: dict[str, Any] = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
}
_KIMI = {"kda_layers": [1, 2], "full_attn_layers": [3], "num_heads": 4, "head_dim": 32}
_SCALARS = {
    "logits_scaling": 2.0,
    "attention_multiplier": 0.2,
    "embedding_multiplier": 1.5,
    "residual_multiplier": 0.5,
}
_WINDOWS = ["sliding_attention", "full_attention", "sliding_attention"]
_BOTH_ROPES = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0},
    "full_attention": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
}
_GEMMA4: dict[str, Any] = {
    **_BASE,
    "model_type": "gemma4_text",
    "num_hidden_layers": 6,
    "num_key_value_heads": 1,
    "global_head_dim": 64,
    "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 32,
    "sliding_window": 8,
    "sliding_window_pattern": 2,
    "final_logit_softcapping": 30.0,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "rope_parameters": {
        "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 100000.0},
        "sliding_attention": {"rope_theta": 10000.0},
    },
}
_DENSE_AND_SPARSE = ["dense", "sparse", "sparse"]


def _text(**inner: Any) -> Callable[[int], dict[str, Any]]:
    """A config within a config, which knows the size of the vocabulary."""
    return lambda size: {**_BASE, "vocab_size": size, **inner}


def _gemma4(size: int) -> dict[str, Any]:
    return {**_GEMMA4, "vocab_size": size, "vocab_size_per_layer_input": size}


def _gemma3n(size: int) -> dict[str, Any]:
    return {
        **_BASE,
        "model_type": "gemma3n",
        "vocab_size": size,
        "vocab_size_per_layer_input": size,
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 2,
        "sliding_window": 8,
        "rope_local_base_freq": 1000.0,
        "final_logit_softcapping": 30.0,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "activation_sparsity_pattern": [0.5, 0.5, 0.0, 0.0],
        "hidden_size_per_layer_input": 128,
        "altup_num_inputs": 4,
        "altup_coef_clip": 1.0,
        "altup_correct_scale": True,
        "altup_active_idx": 0,
        "laurel_rank": 32,
    }


def _openelm() -> dict[str, Any]:
    return {
        "head_dim": 32,
        "num_transformer_layers": 3,
        "model_dim": 128,
        "ffn_dim_divisor": 128,
        "num_query_heads": [4, 4, 8],
        "num_kv_heads": [2, 2, 4],
        "ffn_multipliers": [1.0, 1.5, 2.0],
    }


_BLOCK = {"attention": {"n_heads_in_group": 2}, "ffn": {"ffn_mult": 1.3}}

# By model_type, without it where the key is the same.
_DIFFERENCES: dict[str, dict[str, Any]] = {
    "Klear": {**_EXPERTS, **_SHARED, "mlp_only_layers": [0], "decoder_sparse_step": 1},
    "afm7": {
        "hidden_dim": 128,
        "num_layers": 4,
        "num_kv_reuse_layers": 2,
        "num_heads": 4,
        "num_kv_heads": 2,
    },
    "afmoe": {
        **_EXPERTS,
        **_SHARED,
        "layer_types": _WINDOWS,
        "sliding_window": 8,
        "num_dense_layers": 1,
    },
    "apertus": {"qk_norm": True, "post_norm": False, "mlp_bias": False},
    "baichuan_m1": {"sliding_window": 8, "sliding_window_layers": [0, 2], "conv_window": 2},
    "bailing_hybrid": {
        **_EXPERTS,
        **_SHARED,
        **_LATENT,
        "n_group": 2,
        "topk_group": 1,
        "layer_group_size": 2,
        "group_norm_size": 4,
    },
    "bailing_moe": {**_EXPERTS, **_SHARED},
    "bailing_moe_linear": {
        **_EXPERTS,
        **_SHARED,
        "num_key_value_heads": 4,
        "layer_group_size": 2,
        "group_norm_size": 2,
    },
    "bailing_moe_v3": {
        **_EXPERTS,
        **_SHARED,
        **_LATENT,
        "num_hidden_layers": 4,
        "moe_shared_expert_intermediate_size": 128,
        "n_group": 2,
        "topk_group": 1,
        "architectures": ["BailingMoeV3ForCausalLM"],
    },
    "bitnet": {},
    "cohere": {"logit_scale": 1.0},
    "dbrx": {
        "d_model": 128,
        "n_layers": 3,
        "n_heads": 4,
        "ffn_config": {"ffn_hidden_size": 128, "moe_num_experts": 4, "moe_top_k": 2},
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0},
    },
    "deepseek": {**_EXPERTS, **_SHARED},
    "deepseek_v2": {**_EXPERTS, **_SHARED, **_LATENT, "rope_scaling": _YARN},
    "deepseek_v32": {**_EXPERTS, **_SHARED, **_LATENT, **_INDEX, "rope_scaling": _YARN},
    "deepseek_v41": {
        **_EXPERTS,
        "num_hidden_layers": 6,
        "rms_norm_eps": 1e-6,
        "q_lora_rank": 64,
        "qk_rope_head_dim": 8,
        "o_groups": 2,
        "o_lora_rank": 32,
        "sliding_window": 4,
        "compress_ratios": [0, 2, 2, 2, 1, 1],
        "kv_source_layer_ids": [1, 4],
        "index_source_layer_ids": [1, 2, 4, 5],
        "candidate_source_layer_id": 4,
        "candidate_topk_blocks": 2,
        "candidate_block_size": 2,
        "index_n_heads": 4,
        "index_head_dim": 32,
        "index_topk": 4,
    },
    "ernie4_5": {"tie_word_embeddings": True},
    "ernie4_5_moe": {**_EXPERTS, "moe_num_experts": 4, "moe_k": 2, "moe_num_shared_experts": 1},
    "exaone": {"num_layers": 3},
    "exaone_moe": {
        **_EXPERTS,
        **_SHARED,
        "sliding_window": 8,
        "layer_types": _WINDOWS,
        "is_moe_layer": [False, True, True],
    },
    "gear": {
        "num_hidden_layers": 4,
        "num_key_value_heads": 1,
        "layer_types": ["sliding_attention", "conv_mixer", "full_attention", "conv_mixer"],
        "query_pre_attn_scalar": 32,
        "sliding_window": 8,
        "rope_local_base_freq": 1000.0,
    },
    "gemma3": {
        "text_config": _text(
            model_type="gemma3_text",
            num_attention_heads=4,
            sliding_window=8,
            sliding_window_pattern=2,
            query_pre_attn_scalar=32,
            rope_local_base_freq=1000.0,
        ),
    },
    "gemma3n": {"text_config": _gemma3n},
    "gemma4": {"text_config": _gemma4},
    "gemma4_text": {**_GEMMA4, "vocab_size_per_layer_input": lambda size: size},
    "glm": {},
    "glm4": {"partial_rotary_factor": 0.5, "attention_bias": True},
    "glm4_moe": {
        **_EXPERTS,
        **_SHARED,
        "n_group": 2,
        "topk_group": 1,
        "use_qk_norm": True,
        "partial_rotary_factor": 0.5,
        "rope_scaling": None,
    },
    "glm4_moe_lite": {**_EXPERTS, **_SHARED, **_LATENT},
    "glm_moe_dsa": {
        **_EXPERTS,
        **_SHARED,
        **_LATENT,
        **_INDEX,
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
        "n_group": 1,
        "topk_group": 1,
        "moe_layer_freq": 1,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    },
    "gpt_bigcode": {
        "n_embd": 128,
        "n_layer": 3,
        "n_inner": 256,
        "n_head": 4,
        "n_positions": 512,
        "num_key_value_heads": 1,
    },
    "gptj": {"n_embd": 128, "n_layer": 3, "n_head": 4, "n_positions": 512, "rotary_dim": 16},
    "granite": {**_SCALARS},
    "granitemoe": {**_SCALARS, **_EXPERTS},
    "helium": {},
    "hunyuan": {
        **_EXPERTS,
        "num_hidden_layers": 4,
        "moe_topk": 2,
        "num_shared_expert": 1,
        "use_mixed_mlp_moe": True,
        "use_qk_norm": True,
        "use_cla": True,
        "cla_share_factor": 2,
        "rope_scaling": {"alpha": 1000.0, "factor": 1.0, "type": "dynamic"},
    },
    "hunyuan_v1_dense": {"rope_scaling": {"alpha": 1000.0, "factor": 1.0, "type": "dynamic"}},
    "internlm2": {},
    "internlm3": {},
    "iquestloopcoder": {"loop_window_size": 8},
    "kimi_k25": {
        "text_config": _text(
            model_type="kimi_k2", **{**_EXPERTS, **_SHARED, **_LATENT}, n_group=1, topk_group=1
        )
    },
    "kimi_k3": {
        "text_config": _text(
            model_type="kimi_linear",
            linear_attn_config={
                **_KIMI,
                "short_conv_kernel_size": 4,
                "gate_lower_bound": -5.0,
                "use_full_rank_gate": True,
            },
            activation_situ_beta=4.0,
            activation_situ_linear_beta=25.0,
            attn_res_block_size=2,
            mla_use_output_gate=True,
            num_experts_per_token=2,
            routed_expert_hidden_size=128,
            latent_moe_use_norm=True,
            **{**_EXPERTS, **_SHARED, **_LATENT},
        ),
    },
    "kimi_linear": {
        **_EXPERTS,
        **_SHARED,
        **_LATENT,
        "linear_attn_config": _KIMI,
        "model_max_length": 512,
    },
    "kimi_vl": {"text_config": _text(**{**_EXPERTS, **_SHARED, **_LATENT})},
    "laguna": {
        **_EXPERTS,
        **_SHARED,
        "sliding_window": 8,
        "partial_rotary_factor": 0.5,
        "rope_parameters": {
            "full_attention": {**_YARN, "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0},
        },
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
        "num_attention_heads_per_layer": [4, 4, 4],
        "mlp_layer_types": _DENSE_AND_SPARSE,
        "moe_routed_scaling_factor": 2.5,
    },
    "lfm2-vl": {
        "text_config": _text(
            model_type="lfm2",
            conv_bias=False,
            conv_L_cache=3,
            block_dim=128,
            block_ff_dim=128,
            block_multiple_of=128,
            block_ffn_dim_multiplier=1.0,
            block_auto_adjust_ff_dim=False,
            layer_types=["conv", "full_attention", "conv"],
        ),
    },
    "lfm2_moe": {
        **_EXPERTS,
        "full_attn_idxs": [1],
        "conv_bias": True,
        "conv_L_cache": 3,
        "num_dense_layers": 1,
        "use_expert_bias": True,
    },
    "lille-130m": {"block_size": 512, "n_embd": 128, "n_head": 4, "n_kv_heads": 2, "n_layer": 3},
    "llama4": {
        "text_config": _text(
            model_type="llama4",
            attention_chunk_size=8,
            interleave_moe_layer_step=2,
            intermediate_size_mlp=128,
            num_experts_per_tok=1,
            num_local_experts=4,
            rope_scaling=None,
            use_qk_norm=True,
            num_hidden_layers=4,
        ),
    },
    "llama4_text": {
        "intermediate_size_mlp": 128,
        "no_rope_layers": [1, 0, 1],
        "use_qk_norm": True,
    },
    "longcat_flash": {
        **_EXPERTS,
        **_LATENT,
        "attention_method": "MLA",
        "zero_expert_type": "identity",
        "ffn_hidden_size": 128,
        "moe_topk": 2,
        "expert_ffn_hidden_size": 128,
        "zero_expert_num": 2,
        "num_layers": 3,
        "mla_scale_q_lora": True,
        "mla_scale_kv_lora": True,
    },
    "longcat_flash_ngram": {
        **_EXPERTS,
        **_LATENT,
        "ffn_hidden_size": 128,
        "moe_topk": 2,
        "expert_ffn_hidden_size": 128,
        "zero_expert_num": 2,
        "num_layers": 3,
        "mla_scale_q_lora": True,
        "mla_scale_kv_lora": True,
    },
    "mellum": {
        **_EXPERTS,
        "sliding_window": 8,
        "layer_types": _WINDOWS,
        "rope_parameters": _BOTH_ROPES,
    },
    "mimo": {},
    "mimo_v2_flash": {
        **_EXPERTS,
        "n_shared_experts": None,
        "routed_scaling_factor": None,
        "hybrid_layer_pattern": [0, 1, 0],
        "moe_layer_freq": [0, 1, 1],
        "add_swa_attention_sink_bias": True,
        "add_full_attention_sink_bias": False,
        "sliding_window_size": 8,
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
        "n_group": 2,
        "topk_group": 1,
        "layernorm_epsilon": 1e-5,
        "swa_rope_theta": 1000.0,
        "swa_num_attention_heads": 4,
        "swa_num_key_value_heads": 2,
        "v_head_dim": 16,
        "swa_head_dim": 32,
        "swa_v_head_dim": 16,
        "partial_rotary_factor": 0.5,
        "attention_value_scale": 0.7,
    },
    "minicpm": {"dim_model_base": 128, "scale_depth": 1.4, "scale_emb": 2.0},
    "minicpm3": {
        **_LATENT,
        "dim_model_base": 128,
        "scale_depth": 1.4,
        "scale_emb": 2.0,
        "rope_scaling": {
            "original_max_position_embeddings": 512,
            "short_factor": [1.0] * 8,
            "long_factor": [2.0] * 8,
        },
    },
    "minimax": {**_EXPERTS, "shared_intermediate_size": 128, "rotary_dim": 16},
    "minimax_m3_vl": {
        "text_config": _text(
            model_type="minimax_m3_vl",
            dense_intermediate_size=128,
            shared_intermediate_size=128,
            rotary_dim=16,
            mlp_layer_types=_DENSE_AND_SPARSE,
            layer_types=["full_attention", "minimax_m3_sparse", "minimax_m3_sparse"],
            index_n_heads=2,
            index_head_dim=32,
            index_block_size=4,
            index_topk_blocks=2,
            index_local_blocks=1,
            **_EXPERTS,
        ),
    },
    "ministral3": {
        "layer_types": _WINDOWS,
        "sliding_window": 8,
        "rope_parameters": {
            **_YARN,
            "rope_theta": 10000.0,
            "llama_4_scaling_beta": 0.1,
        },
    },
    "mistral3": {"text_config": _text(model_type="mistral")},
    "mistral4": {
        **_EXPERTS,
        **_SHARED,
        **_LATENT,
        "n_group": 2,
        "topk_group": 1,
        "head_dim": 48,
        "qk_head_dim": 48,
        "rope_parameters": {**_YARN, "rope_theta": 10000.0, "llama_4_scaling_beta": 0.1},
    },
    "muse_glimmer": {
        "sliding_window": 8,
        "layer_types": _WINDOWS,
        "layer_rope_theta": [1000.0, 0, 1000.0],
    },
    "muse_spark": {
        "image_token_id": 1,
        "text_config": _text(
            post_norm_eps=1e-8,
            rope_parameters={"rope_theta": 10000.0, "rope_type": "default"},
            layer_rope_theta=[10000.0, 0, 10000.0],
            layer_types=_WINDOWS,
            sliding_window=8,
            final_logit_softcapping=20.0,
            output_multiplier=0.7,
            moe_hidden_size=128,
            **_EXPERTS,
        ),
    },
    "nanbeige": {"num_loops": 2},
    "nanochat": {"num_key_value_heads": 2},
    "nemotron": {"hidden_act": "relu2"},
    "nemotron-nas": {
        "block_configs": [
            _BLOCK,
            {"attention": {"no_op": True}, "ffn": {"ffn_mult": 2.0}},
            {"attention": {"n_heads_in_group": 4}, "ffn": {"replace_with_linear": True}},
            {"attention": {"replace_with_linear": True}, "ffn": {"no_op": True}},
        ],
        "num_hidden_layers": 4,
    },
    "olmo_hybrid": {
        **_LINEAR,
        "linear_allow_neg_eigval": True,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    },
    "olmoe": {**_EXPERTS},
    "openelm": _openelm(),
    "phi3small": {
        "vocab_size": 100352,  # its network forbids tokens up to the last one by their ids
        "dense_attention_every_n_layers": 2,
        "ff_intermediate_size": 256,
        "gegelu_limit": 20.0,
    },
    "phimoe": {
        **_EXPERTS,
        "rope_scaling": {
            "type": "longrope",
            "original_max_position_embeddings": 512,
            "long_factor": [2.0] * 16,
            "short_factor": [1.0] * 16,
            "long_mscale": 1.2,
            "short_mscale": 1.2,
        },
    },
    "phixtral": {
        "num_vocab": lambda size: size,
        "model_dim": 128,
        "num_heads": 4,
        "num_layers": 3,
        "rotary_dim": 16,
    },
    "pixtral": {"text_config": _text(model_type="llama")},
    "plamo": {"n_shared_head": 2},
    "plamo2": {
        "hidden_size_per_head": 32,
        "attention_window_size": 512,
        "mamba_d_state": 16,
        "mamba_num_heads": 4,
        "mamba_step": 2,
        "num_hidden_layers": 4,
        "tie_word_embeddings": True,
    },
    "plamo3": {"window_size": 8, "sliding_window_pattern": 2},
    "qwen": {"kv_channels": 32, "no_bias": True},
    "qwen2_moe": {**_EXPERTS, **_SHARED},
    "qwen2_vl": {"text_config": _text(model_type="qwen2")},
    "qwen3_5": {
        "text_config": _text(
            model_type="qwen3_5", full_attention_interval=2, partial_rotary_factor=0.5, **_LINEAR
        ),
    },
    "qwen3_5_moe": {
        "text_config": _text(
            model_type="qwen3_5_moe",
            full_attention_interval=2,
            partial_rotary_factor=0.5,
            **{**_LINEAR, **_EXPERTS, **_SHARED},
        ),
    },
    "qwen3_vl": {"text_config": _text(model_type="qwen3")},
    "qwen3_vl_moe": {
        "text_config": _text(
            model_type="qwen3_moe", decoder_sparse_step=1, mlp_only_layers=[], **_EXPERTS
        )
    },
    "seed_oss": {"attention_bias": True},
    "smollm3": {"no_rope_layers": [1, 0, 1]},
    "solar_open": {**_EXPERTS, **_SHARED, "partial_rotary_factor": 1.0},
    "spark2_5": {"sliding_window": 8, "layer_types": _WINDOWS, "rope_parameters": _BOTH_ROPES},
    "step3p5": {
        **_EXPERTS,
        "num_attention_groups": 2,
        "sliding_window": 8,
        "rope_theta": [10000.0, 1000.0, 10000.0],
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
        "partial_rotary_factors": [0.5, 1.0, 0.5],
        "attention_other_setting": {"num_attention_heads": 8, "num_attention_groups": 2},
        "moe_num_experts": 4,
        "moe_top_k": 2,
        "share_expert_dim": 128,
        "moe_layers_enum": "1,2",
    },
    "talkie": {},
    "telechat3": {},
    "youtu_llm": {**_LATENT},
}

# One of mlx-lm's own tests each: a module whose name is not its model_type.
_MODEL_TYPES = {"bailing_moe_v3": "bailing_hybrid"}

CONFIGS: dict[str, dict[str, Any]] = {
    name: {**_BASE, "model_type": _MODEL_TYPES.get(name, name), **differences}
    for name, differences in _DIFFERENCES.items()
}
