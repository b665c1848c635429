"""What is asked of plain mlx-lm, once for all tests of a run."""

from __future__ import annotations

import itertools
import json
from typing import Any

from driver import prompt
from support import tiny_models
from support.paths import CALF

SHORT, BEYOND_WINDOWS, LONG = 5, 40, 700
COUNT = 24  # tokens to generate
# Their prompts take more than one chunk of the prefill.
LONG_MODELS = ["llama-long", "gemma3-long", "mamba2", "falcon_h1-long"]
PENALTIES = [
    (1.5, 20),
    (6.0, 1),
    (6.0, 2),
    (6.0, 7),
    (0.5, 64),
]  # repetition_penalty, repetition_window
MESSAGES = [{"role": "user", "content": "Tell me a story about a fox."}]
CALF_COUNT = 120
HELDOUT = CALF / "heldout.json"
ASKED = 20

TASKS: dict[str, dict[str, Any]] = {
    f"{family} {length}": {"model": family, "prompt": prompt(length), "max_tokens": COUNT}
    for family in tiny_models.FAMILIES
    for length in (SHORT, BEYOND_WINDOWS)
}
TASKS |= {
    f"{model} {LONG}": {"model": model, "prompt": prompt(LONG), "max_tokens": COUNT}
    for model in LONG_MODELS
}
TASKS |= {
    f"penalty {penalty} {window}": {
        "model": "soft",
        "prompt": prompt(BEYOND_WINDOWS),
        "max_tokens": COUNT,
        "repetition_penalty": penalty,
        "repetition_window": window,
    }
    for penalty, window in PENALTIES
}
TASKS |= {
    f"{model} {bits} {size} {length}": {
        "model": model,
        "prompt": prompt(length),
        "max_tokens": COUNT,
        "kv_bits": bits,
        "kv_group_size": size,
    }
    for model, length in [
        ("llama-wide", LONG),
        ("qwen2-wide", BEYOND_WINDOWS),
        ("qwen3_next-wide", BEYOND_WINDOWS),
    ]
    for bits in (4, 8)
    for size in (32, 64)
}
SCORED = ["llama", "gemma3_text", "mamba2", "rwkv7", "falcon_h1", "soft"]
TASKS |= {
    f"score {model}": {"model": model, "prompt": prompt(BEYOND_WINDOWS), "score": True}
    for model in SCORED
}
TASKS["spread"] = {"model": "soft", "prompt": prompt(3), "max_tokens": 1}


def asked() -> list[dict[str, Any]]:
    """ASKED held-out questions of models/calf, spread over all kinds."""
    entries = json.loads(HELDOUT.read_text())
    kinds = sorted({entry["kind"] for entry in entries})
    of_kind = [[entry for entry in entries if entry["kind"] == kind] for kind in kinds]
    rounds = itertools.zip_longest(*of_kind)
    return [entry for round_ in rounds for entry in round_ if entry][:ASKED]


if HELDOUT.exists():
    TASKS["calf"] = {"model": "calf", "messages": MESSAGES, "max_tokens": CALF_COUNT}
    TASKS |= {
        f"calf {number}": {
            "model": "calf",
            "messages": entry["messages"],
            "tools": entry.get("tools"),
            "max_tokens": 256,
        }
        for number, entry in enumerate(asked())
    }
