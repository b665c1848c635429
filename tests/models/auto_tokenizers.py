"""A program: what AutoTokenizer makes of folders. Knows nothing of cowmlx.

Each line of its input is a list of requests as JSON, and is answered by a line.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import pathlib

import mlx_lm.tokenizer_utils


def answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        wrapper = mlx_lm.tokenizer_utils.load(
            pathlib.Path(request["path"]), eos_token_ids=request.get("eos_token_ids")
        )
    except Exception as exc:
        return {"refusal": f"{type(exc).__name__}: {exc}"}
    tokenizer = wrapper._tokenizer
    texts = request.get("texts", [])
    found: dict[str, Any] = {
        "class": type(tokenizer).__name__,
        "with_special": [tokenizer.encode(text) for text in texts],
        "without_special": [tokenizer.encode(text, add_special_tokens=False) for text in texts],
        "plain": [
            tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
            for text in texts
        ],
        "special": tokenizer.special_tokens_map,
        "size": len(tokenizer),
        "end_tokens": sorted(wrapper.eos_token_ids),
        "thinking": [wrapper.think_start, wrapper.think_end],
        "tool_parser": tokenizer.init_kwargs.get("tool_parser_type"),
        "tool_call": [wrapper.tool_call_start, wrapper.tool_call_end],
        "chats": [],
    }
    found["decoded"] = [
        tokenizer.decode(ids, skip_special_tokens=False) for ids in found["with_special"]
    ]
    for chat in request.get("chats", []):
        found["chats"].append(render(wrapper, chat))
    return found


def render(wrapper: Any, chat: dict[str, Any]) -> dict[str, Any]:
    messages, options = chat["messages"], chat["options"]
    sanitized = options.pop("sanitize", False)
    try:
        result = {
            "text": wrapper.apply_chat_template(messages, tokenize=False, **options),
            "tokens": wrapper.apply_chat_template(messages, **options),
        }
    except Exception as exc:
        return {"error": f"{type(exc).__name__}: {exc}"}
    if sanitized:
        result["sanitized"] = wrapper.apply_chat_template(
            messages, sanitize_control_tokens=True, **options
        )
    return result


def main() -> None:
    for line in sys.stdin:
        print(json.dumps([answer(request) for request in json.loads(line)]), flush=True)


main()
