"""Tiny random models on disk, in the format of real ones.

``make(folder, "llama")`` writes ``config.json``, ``model.safetensors`` and a tokenizer. Weights
are scaled so that greedy tokens are no near-ties, and the end token is never the best one, so
that a generation continues until something else stops it.
"""

from __future__ import annotations

import inspect
import json
import pathlib
import shutil
import tempfile
from typing import Any

from . import tiny_architectures, tokenizers, wirings

_BASE: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
_MOE: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_MAMBA2: dict[str, Any] = {
    "mamba_n_heads": 4,
    "mamba_d_head": 32,
    "mamba_proj_bias": False,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "mamba_n_groups": 1,
    "mamba_conv_bias": True,
}

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {**_BASE, "model_type": "llama"},
    "mistral": {**_BASE, "model_type": "mistral"},
    "qwen2": {**_BASE, "model_type": "qwen2"},
    "qwen3": {**_BASE, "model_type": "qwen3", "tie_word_embeddings": True},
    "gemma": {**_BASE, "model_type": "gemma"},
    "gemma2": {**_BASE, "model_type": "gemma2", "query_pre_attn_scalar": 16.0},
    "gemma3_text": {
        **_BASE,
        "model_type": "gemma3_text",
        "num_hidden_layers": 4,
        "sliding_window": 8,
        "sliding_window_pattern": 2,
        "query_pre_attn_scalar": 16,
        "rope_local_base_freq": 10000.0,
    },
    "phi": {**_BASE, "model_type": "phi", "num_key_value_heads": 4, "partial_rotary_factor": 0.5},
    "phi3": {**_BASE, "model_type": "phi3", "original_max_position_embeddings": 512},
    "mixtral": {
        **_BASE,
        "model_type": "mixtral",
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    },
    "qwen3_moe": {
        **_BASE,
        **_MOE,
        "model_type": "qwen3_moe",
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
    },
    "deepseek_v3": {
        **_BASE,
        "model_type": "deepseek_v3",
        "num_key_value_heads": 4,
        "moe_intermediate_size": 32,
        "n_shared_experts": 1,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
        "kv_lora_rank": 32,
        "q_lora_rank": 32,
        "qk_rope_head_dim": 16,
        "qk_nope_head_dim": 16,
        "v_head_dim": 16,
    },
    "gpt_oss": {
        **_BASE,
        "model_type": "gpt_oss",
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "olmo2": {**_BASE, "model_type": "olmo2"},
    "olmo3": {
        **_BASE,
        "model_type": "olmo3",
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "cohere2": {
        **_BASE,
        "model_type": "cohere2",
        "num_hidden_layers": 4,
        "sliding_window": 8,
        "sliding_window_pattern": 2,
        "layer_norm_eps": 1e-5,
        "logit_scale": 1.0,
    },
    "exaone4": {
        **_BASE,
        "model_type": "exaone4",
        "rope_scaling": {"rope_type": "llama3", "factor": 2.0},
        "sliding_window": 8,
        "sliding_window_pattern": "LLG",
    },
    "dots1": {
        **_BASE,
        "model_type": "dots1",
        "first_k_dense_replace": 1,
        "moe_intermediate_size": 32,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.0,
    },
    "starcoder2": {**_BASE, "model_type": "starcoder2"},
    "stablelm": {
        **_BASE,
        "model_type": "stablelm",
        "use_qkv_bias": True,
        "partial_rotary_factor": 0.5,
        "layer_norm_eps": 1e-5,
    },
    "gpt2": {
        "model_type": "gpt2",
        "n_ctx": 512,
        "n_positions": 512,
        "n_embd": 64,
        "n_head": 4,
        "n_layer": 3,
        "layer_norm_epsilon": 1e-5,
    },
    "gpt_neox": {
        **_BASE,
        "model_type": "gpt_neox",
        "num_key_value_heads": 4,
        "layer_norm_eps": 1e-5,
        "rotary_emb_base": 10000,
        "rotary_pct": 0.5,
    },
    "mamba": {
        "model_type": "mamba",
        "hidden_size": 64,
        "intermediate_size": 128,
        "state_size": 8,
        "num_hidden_layers": 3,
        "conv_kernel": 4,
        "use_bias": False,
        "use_conv_bias": True,
        "time_step_rank": 4,
    },
    "mamba2": {
        "model_type": "mamba2",
        "num_heads": 4,
        "head_dim": 32,
        "hidden_size": 64,
        "intermediate_size": 128,
        "state_size": 16,
        "num_hidden_layers": 3,
        "layer_norm_epsilon": 1e-5,
        "conv_kernel": 4,
        "n_groups": 1,
        "use_bias": False,
        "use_conv_bias": True,
        "tie_word_embeddings": True,
        "time_step_limit": [0.0, 100.0],
        "time_step_rank": 4,
    },
    "rwkv7": {
        "model_type": "rwkv7",
        "hidden_size": 64,
        "intermediate_size": 96,
        "norm_eps": 1e-5,
        "head_dim": 32,
        "num_hidden_layers": 3,
        "a_low_rank_dim": 16,
        "v_low_rank_dim": 16,
        "gate_low_rank_dim": 16,
        "decay_low_rank_dim": 16,
    },
    "recurrent_gemma": {
        **_BASE,
        "model_type": "recurrent_gemma",
        "num_key_value_heads": 1,
        "attention_bias": False,
        "conv1d_width": 4,
        "logits_soft_cap": 30.0,
        "attention_window_size": 8,
        "block_types": ["recurrent", "attention"],
        "intermediate_size": 128,
    },
    "granitemoehybrid": {
        **_BASE,
        **_MAMBA2,
        "model_type": "granitemoehybrid",
        "attention_bias": False,
        "embedding_multiplier": 1.0,
        "attention_multiplier": 0.25,
        "logits_scaling": 1.0,
        "residual_multiplier": 1.0,
        "layer_types": ["mamba", "attention", "mamba"],
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 32,
        "tie_word_embeddings": True,
    },
    "qwen3_next": {
        **_BASE,
        **_MOE,
        "model_type": "qwen3_next",
        "num_hidden_layers": 4,
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 4,
        "decoder_sparse_step": 1,
        "shared_expert_intermediate_size": 32,
        "mlp_only_layers": [],
        "partial_rotary_factor": 0.5,
        "full_attention_interval": 2,
    },
    "jamba": {
        **_BASE,
        "model_type": "jamba",
        "attn_layer_offset": 1,
        "attn_layer_period": 2,
        "expert_layer_offset": 1,
        "expert_layer_period": 2,
        "mamba_d_conv": 4,
        "mamba_d_state": 8,
        "mamba_expand": 2,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 4,
    },
    "nemotron_h": {
        **_BASE,
        "model_type": "nemotron_h",
        "num_hidden_layers": 4,
        "attention_bias": False,
        "mamba_num_heads": 4,
        "mamba_head_dim": 32,
        "mamba_proj_bias": False,
        "ssm_state_size": 16,
        "conv_kernel": 4,
        "n_groups": 1,
        "mlp_bias": False,
        "layer_norm_epsilon": 1e-5,
        "use_bias": False,
        "use_conv_bias": True,
        "hybrid_override_pattern": "M*-M",
    },
    "falcon_h1": {
        **_BASE,
        **_MAMBA2,
        "model_type": "falcon_h1",
        "mamba_d_ssm": 128,
        "mamba_expand": 2,
        "lm_head_multiplier": 1.0,
        "tie_word_embeddings": False,
    },
    "lfm2": {
        **_BASE,
        "model_type": "lfm2",
        "norm_eps": 1e-5,
        "conv_bias": False,
        "conv_L_cache": 3,
        "block_dim": 64,
        "block_ff_dim": 96,
        "block_multiple_of": 32,
        "block_ffn_dim_multiplier": 1.0,
        "block_auto_adjust_ff_dim": False,
        "full_attn_idxs": [1],
        "rope_theta": 10000.0,
    },
}

# Those of cowmlx itself, unknown to plain mlx-lm. A function is given the size of the vocabulary.
OWN: dict[str, dict[str, Any]] = {
    "xlstm": {
        "model_type": "xlstm",
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "num_heads": 4,
        "ffn_proj_factor": 1.5,
        "ffn_round_up_to_multiple_of": 32,
        "chunk_size": 16,
    },
    "mad-llama": {"model_type": "mad", "wiring": wirings.llama},
    "mad-xlstm": {"model_type": "mad", "wiring": wirings.xlstm},
    "mad-hybrid": {"model_type": "mad", "wiring": wirings.hybrid},
    "mad-slstm": {"model_type": "mad", "wiring": wirings.slstm},
    "mad-parallel": {"model_type": "mad", "wiring": wirings.parallel},
}

# Families whose tied embedding would drown the layers and repeat one token: their embedding is
# scaled down by this, their last norm up.
_FAINT = {"gemma2": 0.05}

_built: dict[str, pathlib.Path] = {}
_store: tempfile.TemporaryDirectory[str] | None = None


def make(
    folder: pathlib.Path,
    family: str,
    *,
    seed: int = 0,
    tokenizer: str = "bpe",
    quantize: dict[str, Any] | list[dict[str, Any]] | None = None,
    config: dict[str, Any] | None = None,
    dtype: str = "float32",
) -> pathlib.Path:
    """Write a tiny model into ``folder``, which is made if need be, and return it.

    Args:
        folder: where to.
        family: a key of :data:`FAMILIES`, :data:`OWN` or :data:`tiny_architectures.CONFIGS`.
        seed: of the random weights.
        tokenizer: one of ``tests.support.tokenizers.KINDS``.
        quantize: group_size, bits and mode; layers by path as in a config, False or settings. A
            list of such settings: the layers take them in turn.
        config: replaces keys of the family's config.
        dtype: of the weights that are not quantized, and of scales.
    """
    global _store
    key = json.dumps([family, seed, tokenizer, quantize, config, dtype], sort_keys=True)
    if key not in _built:
        if _store is None:
            _store = tempfile.TemporaryDirectory(prefix="tiny-models-")
        place = pathlib.Path(tempfile.mkdtemp(dir=_store.name))
        _build(place, family, seed, tokenizer, quantize, config or {}, dtype)
        _built[key] = place
    shutil.copytree(_built[key], folder, dirs_exist_ok=True)
    return folder


def change_config(path: pathlib.Path, keys: dict[str, Any]) -> pathlib.Path:
    """Change keys of config.json; those of objects in it are behind dots."""
    config = json.loads((path / "config.json").read_text())
    for key, value in keys.items():
        part = config
        *outer, last = key.split(".")
        for name in outer:
            part = part[name]
        part[last] = value
    (path / "config.json").write_text(json.dumps(config))
    return path


def _build(
    folder: pathlib.Path,
    family: str,
    seed: int,
    tokenizer: str,
    quantize: dict[str, Any] | list[dict[str, Any]] | None,
    changes: dict[str, Any],
    dtype: str,
) -> None:
    import mlx.core as mx
    import mlx.nn as nn
    from mlx.utils import tree_flatten, tree_unflatten

    from cowmlx.networks import architectures

    tokenizer_json, tokenizer_config = tokenizers.build(tokenizer)
    (folder / "tokenizer.json").write_text(tokenizer_json, encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(tokenizer_config, encoding="utf-8")
    size, end = _size_and_end(tokenizer_json, json.loads(tokenizer_config))

    family_config = {**FAMILIES, **OWN, **tiny_architectures.CONFIGS}[family]
    config = {"vocab_size": size, "eos_token_id": end, **family_config, **changes}
    config = {key: value(size) if callable(value) else value for key, value in config.items()}
    module: Any = architectures.load(architectures.name(config))
    arguments = module.ModelArgs.from_dict(config)
    network = module.Model(arguments)
    # Some initial values, such as biases, are random: those that another network has otherwise.
    other = dict(tree_flatten(module.Model(arguments).parameters()))
    weights = {
        path: _random(mx, path, array, other[path], seed * 100003 + index, end, size)
        for index, (path, array) in enumerate(sorted(tree_flatten(network.parameters())))
    }
    if family in _FAINT:
        for path in ("model.embed_tokens.weight", "model.norm.weight"):
            weights[path] *= _FAINT[family] ** (1 if "embed" in path else -1)
    network.update(tree_unflatten(list(weights.items())))
    network.set_dtype(getattr(mx, dtype))
    if quantize is not None:
        settings = _in_turn(network, quantize) if isinstance(quantize, list) else quantize
        config["quantization"] = settings
        _quantize(nn, network, settings)
    weights = dict(tree_flatten(network.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")


def _size_and_end(tokenizer_json: str, settings: dict[str, Any]) -> tuple[int, int]:
    from tokenizers import Tokenizer

    backend = Tokenizer.from_str(tokenizer_json)
    return backend.get_vocab_size(), backend.token_to_id(settings["eos_token"])


def _random(mx: Any, path: str, array: Any, other: Any, seed: int, end: int, size: int) -> Any:
    """Fill a parameter: matrices by fan-in, embeddings wide, the rest near what it was."""
    leaf = path.rsplit(".", 1)[-1]
    key = mx.random.key(seed)
    if not mx.issubdtype(array.dtype, mx.floating):
        return mx.random.randint(0, 2, array.shape, array.dtype, key=key)
    if array.ndim >= 2 and leaf not in ("A_log", "bias"):
        scale = 1.0 if array.shape[0] == size else 2.0 * array.shape[-1] ** -0.5
        values = mx.random.normal(array.shape, scale=scale, key=key)
        if array.shape[0] == size and array.ndim == 2:
            # Its logit is 0: never the best of hundreds.
            values[end] = 0.0
        return values
    noise = mx.random.normal(array.shape, scale=0.1, key=key)
    fixed = mx.array_equal(array, other).item()
    return array.astype(mx.float32) + noise if fixed else noise


def _can_be_packed(module: Any) -> bool:
    """Whether mlx-lm packs a layer; it gives all of them a mode."""
    pack = getattr(module, "to_quantized", None)
    return pack is not None and "mode" in inspect.signature(pack).parameters


def _in_turn(network: Any, formats: list[dict[str, Any]]) -> dict[str, Any]:
    """Settings by which each layer that can be packed takes the next format that fits it."""
    settings: dict[str, Any] = {**formats[0]}
    waiting = list(formats)
    wanted = getattr(network, "quant_predicate", None) or (lambda path, module: True)
    for path, module in network.named_modules():
        if _can_be_packed(module) and not wanted(path, module):
            settings[path] = False
        elif _can_be_packed(module):
            columns = module.weight.shape[-1]
            fits = [each for each in waiting if columns % each["group_size"] == 0]
            settings[path] = dict(fits[0]) if fits else False
            if fits:
                waiting.remove(fits[0])
                waiting.append(fits[0])
    return settings


def _quantize(nn: Any, network: Any, settings: dict[str, Any]) -> None:
    def choose(path: str, module: Any) -> Any:
        if not _can_be_packed(module):
            return False
        chosen = settings.get(path, True)
        group = (chosen if isinstance(chosen, dict) else settings)["group_size"]
        if module.weight.shape[-1] % group:
            return False
        return dict(chosen) if isinstance(chosen, dict) else chosen

    nn.quantize(
        network,
        group_size=settings["group_size"],
        bits=settings["bits"],
        mode=settings.get("mode", "affine"),
        class_predicate=choose,
    )
