"""Absurd numbers in a config are refused by name, before they cost time, memory or the process."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import pytest
from loading import greedy
from support import tiny_models
from support.loaded import load
from support.paths import ROOT

from cowmlx.errors import BadFormat
from cowmlx.folders import config as config_files
from cowmlx.models import config_bounds

HUGE = 2**31 - 1
# Families, what is wrong with their configs, and words of the message.
CASES: list[tuple[str, dict[str, int | str | bool], str]] = [
    ("bailing_hybrid", {"group_norm_size": 0}, "group_norm_size is 0"),
    ("bailing_moe_v3", {"n_group": 0}, "n_group is 0"),
    ("deepseek_v2", {"n_group": 0, "topk_method": "group_limited_greedy"}, "n_group is 0"),
    ("deepseek_v32", {"index_n_heads": 0}, "index_n_heads is 0"),
    ("dots1", {"n_group": 0, "topk_group": -1}, "n_group is 0"),
    ("dbrx", {"ffn_config.moe_num_experts": HUGE}, "ffn_config.moe_num_experts is"),
    ("dbrx", {"n_layers": 4096, "ffn_config.moe_num_experts": 4096}, "more than 65536 modules"),
    ("gemma3n", {"text_config.altup_active_idx": HUGE}, "text_config.altup_active_idx is"),
    ("gemma3n", {"text_config.altup_active_idx": 4}, "altup_active_idx is 4, not within 0 to 3"),
    ("nanbeige", {"num_loops": HUGE}, "num_loops is"),
    ("nanbeige", {"num_hidden_layers": 4096, "num_loops": 5}, "num_loops is 5, not within 0 to 4"),
    ("plamo2", {"num_hidden_layers": HUGE}, "num_hidden_layers is"),
    ("llama", {"num_hidden_layers": 4000}, "is 4000, but the folder has weights for at most 30"),
    ("llama", {"head_dim": 2**40}, "head_dim is 1099511627776"),
    ("llama", {"intermediate_size": 0}, "intermediate_size is 0"),
    ("llama", {"vocab_size": -1}, "vocab_size is -1"),
    ("gpt2", {"n_positions": True}, "n_positions is true, not an integer"),
    ("gpt2", {"n_positions": 0}, "n_positions is 0, not at least 16"),
    ("gpt2", {"n_positions": 15}, "n_positions is 15, not at least 16"),
    ("gpt_bigcode", {"n_positions": 0}, "n_positions is 0, not at least 16"),
]
SECONDS = 120  # for all of them, far more than they take
MEMORY = 8 << 30  # bytes of addresses

CHILD = """
import json, resource, sys

limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

from support.callbacks import StatusError
from support.library import Library

library = Library()
library.start()
for folder in sys.argv[2:]:
    try:
        library.load(folder, lazy=True)
        print("loaded", flush=True)
    except StatusError as error:
        print(json.dumps([error.name, error.message]), flush=True)
library.stop()
"""


def test_absurd_numbers_are_refused_by_name(tmp_path: pathlib.Path) -> None:
    folders = [
        tiny_models.change_config(tiny_models.make(tmp_path / str(at), family), keys)
        for at, (family, keys, _) in enumerate(CASES)
    ]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(MEMORY), *map(str, folders)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
    )
    lines = done.stdout.splitlines()
    assert (done.returncode, len(lines)) == (0, len(CASES)), done.stderr[-2000:]
    for line, (family, keys, words) in zip(lines, CASES, strict=True):
        name, message = json.loads(line)
        assert name == "EFORMAT" and words in message, (family, keys, message)


USUAL: dict[str, Any] = {
    "num_hidden_layers": 128,
    "num_attention_heads": 128,
    "num_experts_per_tok": 12,
    "n_routed_experts": 1024,
    "n_group": 0,
    "hc_sinkhorn_iters": 20,
    "zero_expert_num": 256,
    "max_iters": 600_000,  # of a training
    "image_max_token_num": 1 << 14,
    "max_window_layers": 128,
    "n_positions": 1 << 20,
    "n_ctx": 1 << 20,
    "n_embd": 1 << 14,
    "n_inner": 1 << 16,
    "num_vocab": 1 << 18,
    "num_key_value_heads": -1,
    "num_parameters": 10**12,
    "top_k": 1 << 20,
    "vision_config": {"depth": 64, "num_positions": 1 << 14, "num_channels": 3},
}


@pytest.mark.parametrize("family", ["deepseek_v3", "glm4_moe", "bailing_moe", "kimi_linear"])
def test_no_groups_of_experts_are_one(family: str, tmp_path: pathlib.Path) -> None:
    """mlx-lm's networks group experts only if there is more than one group."""
    path = tiny_models.make(tmp_path, family)
    rows = []
    for groups in (1, 0):
        model = load(tiny_models.change_config(path, {"n_group": groups, "topk_group": groups}))
        rows.append(greedy(model, [5, 6, 7], 3)[0])
    assert rows[0] == rows[1]


def test_numbers_of_large_models_are_taken() -> None:
    config_bounds.check_sizes(USUAL)
    for inner in ({"depth": 5000}, {"num_heads": 5000}):
        with pytest.raises(BadFormat, match=r"vision_config\.\w+ is 5000, not within 0 to 4096"):
            config_bounds.check_sizes({**USUAL, "vision_config": inner})


@pytest.mark.parametrize("key", ["n_positions", "max_position_embeddings", "vocab_size", "n_layer"])
def test_a_boolean_is_no_size(key: str) -> None:
    for value in (True, False):
        with pytest.raises(
            BadFormat, match=rf"text_config\.{key} is {str(value).lower()}, not an integer"
        ):
            config_bounds.check_sizes({"text_config": {key: value}})


def test_flags_are_taken() -> None:
    flags = ("tie_word_embeddings", "use_cache", "do_sample", "use_sliding_window", "add_cross")
    config_bounds.check_sizes({key: value for key in flags for value in (True, False)})


def test_long_keys_are_no_counts() -> None:
    config_bounds.check_sizes({f"num_{'a' * 112}_layers": 4096})
    with pytest.raises(BadFormat, match="not within"):
        config_bounds.check_sizes({f"num_{'a' * 112}_layers": 4097})
    config_bounds.check_sizes({f"num_{'a' * 200}_layers": 4097})


@pytest.mark.parametrize("family", ["gpt2", "gpt_bigcode"])
def test_a_context_ends_with_the_table_of_positions(
    family: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Networks would look up positions behind its last row in other memory."""
    monkeypatch.setattr(config_files, "context_length", lambda *_: 100_000)
    assert load(tiny_models.make(tmp_path, family)).context_length == 512
