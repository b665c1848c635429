"""Conversations with systems, tools, their results and thinking, and options of templates."""

from __future__ import annotations

from typing import Any

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": 'Finds <b> & "c", größe',
            "parameters": {"type": "object", "properties": {"q": {"type": "string"}}},
        },
    }
]
USER = {"role": "user", "content": "Hello, who are you?"}
CHATS: list[tuple[list[dict[str, Any]], dict[str, Any]]] = [
    ([USER], {"add_generation_prompt": True}),
    ([USER], {"add_generation_prompt": False}),
    (
        [
            {"role": "system", "content": "  Be brief.\n"},
            USER,
            {"role": "assistant", "content": "A model. 🙂"},
            {"role": "user", "content": "日本語 please"},
        ],
        {"add_generation_prompt": True},
    ),
    ([USER], {"add_generation_prompt": True, "tools": TOOLS}),
    ([USER], {"add_generation_prompt": True, "enable_thinking": False, "custom": [1, {"a": None}]}),
    (
        [USER, {"role": "assistant", "content": "I am "}],
        {"add_generation_prompt": False, "continue_final_message": True},
    ),
    (
        [USER, {"role": "assistant", "content": "I am"}],
        {"add_generation_prompt": False, "continue_final_message": True},
    ),
    (
        [
            USER,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"type": "function", "function": {"name": "look_up", "arguments": {"q": "x"}}}
                ],
            },
            {"role": "tool", "content": "42"},
        ],
        {"add_generation_prompt": True, "tools": TOOLS},
    ),
    (
        [USER, {"role": "assistant", "content": "Yes.", "reasoning_content": "Think of it."}, USER],
        {"add_generation_prompt": True},
    ),
    ([USER], {"add_generation_prompt": True, "documents": [{"title": "t", "text": "d"}]}),
]
