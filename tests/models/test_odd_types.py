"""Values of another type in a config: errors name them, at a load and in long prompts.

No value is refused for its type alone: mlx-lm's architectures are not exact about types.
"""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from support import tiny_models
from support.callbacks import StatusError
from support.library import Library

from cowmlx.models import config_types
from cowmlx.networks import architectures

LONG = [5 + (at * 7) % 200 for at in range(45)]
# Families, keys of their configs (behind dots those of objects), values, and words of the message.
LOADS: list[tuple[str, str, Any, str]] = [
    ("llama", "num_attention_heads", "4", "num_attention_heads is '4', not an integer"),
    ("llama", "num_key_value_heads", 2.5, "num_key_value_heads is 2.5, not an integer"),
    ("llama", "head_dim", [16], "head_dim is [16], not an integer"),
    ("llama", "rms_norm_eps", None, "rms_norm_eps is null, not a number"),
    ("llama", "rope_scaling", True, "rope_scaling is True, not an object"),
    ("llama", "attention_bias", [1], "attention_bias is [1], not true or false"),
    ("deepseek_v2", "rope_scaling.factor", "x", "rope_scaling.factor is 'x', not a number"),
    ("gemma3", "text_config.hidden_size", "x", "text_config.hidden_size is 'x', not an integer"),
    ("qwen3_vl", "text_config.num_hidden_layers", {"a": 3}, "text_config.num_hidden_layers is {"),
    ("lfm2-vl", "text_config.hidden_size", "128", "text_config.hidden_size is '128', not an"),
    ("kimi_vl", "text_config.kv_lora_rank", None, "text_config.kv_lora_rank is null"),
]
PROMPTS: list[tuple[str, str, Any, str]] = [
    ("minimax_m3_vl", "text_config.index_local_blocks", "x", "index_local_blocks is 'x', not an"),
    ("minimax_m3_vl", "text_config.index_local_blocks", None, "index_local_blocks is null, not an"),
    ("minimax_m3_vl", "text_config.index_block_size", 4.5, "index_block_size is 4.5, not an int"),
    ("deepseek_v32", "index_topk", 8.5, "index_topk is 8.5, not an integer"),
    ("llama4", "text_config.attention_chunk_size", 8.5, "attention_chunk_size is 8.5, not an int"),
]


def folder(place: pathlib.Path, family: str, key: str, value: Any) -> pathlib.Path:
    return tiny_models.change_config(tiny_models.make(place, family), {key: value})


@pytest.fixture(scope="module")
def lib():
    library = Library()
    library.start()
    yield library
    library.stop()


@pytest.mark.parametrize(("family", "key", "value", "words"), LOADS)
def test_a_network_that_cannot_be_made_names_the_value(
    family: str, key: str, value: Any, words: str, lib: Library, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(StatusError) as error:
        lib.load(folder(tmp_path, family, key, value), lazy=True)
    assert (error.value.name, words in error.value.message) == ("EFORMAT", True), error.value


@pytest.mark.parametrize(("family", "key", "value", "words"), PROMPTS)
def test_a_network_that_fails_in_long_prompts_names_the_value(
    family: str, key: str, value: Any, words: str, lib: Library, tmp_path: pathlib.Path
) -> None:
    model = lib.load(folder(tmp_path, family, key, value), lazy=True)
    context = lib.context(model)
    assert lib.generate(context, LONG[:3], max_tokens=2).text is not None
    with pytest.raises(StatusError) as error:
        lib.generate(context, LONG, max_tokens=2)
    assert (error.value.name, words in error.value.message) == ("EFORMAT", True), error.value
    assert lib.generate(context, LONG[:3], max_tokens=2).text is not None
    lib.free(context)
    lib.free_model(model)


def test_usual_values_of_real_configs_are_not_odd() -> None:
    """A config may say null for a value that follows from others, and 1 for 1.0."""
    arguments = architectures.load("llama").ModelArgs
    config = {"rope_theta": 10000, "head_dim": None, "rope_scaling": None, "rms_norm_eps": 1}
    assert config_types.odd_value(config, arguments) == ""
