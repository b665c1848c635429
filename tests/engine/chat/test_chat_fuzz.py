"""Damaged messages and options of a chat: a status every time, and the context stays usable."""

from __future__ import annotations

import json
import random
from ctypes import byref, sizeof

import pytest
from support.outputs import poisoned_struct, untouched
from support.signatures import (
    ECONTEXT,
    EINVAL,
    OK,
    cow_mlx_event_fn,
    cow_mlx_generation_params,
    cow_mlx_stats,
)

MESSAGES = [
    {"role": "system", "content": "You are called Bella. Größe 🙂"},
    {"role": "user", "content": [{"type": "text", "text": "What is <|end|> the weather?"}]},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": "get_weather", "arguments": {"city": "Rome"}}}],
    },
    {"role": "tool", "content": '{"weather": "sunny"}'},
    {"role": "user", "content": "What colour is a fox?"},
]
OPTIONS = {
    "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": {}}}],
    "add_generation_prompt": True,
    "continue_final_message": False,
    "parse_special": False,
    "enable_thinking": False,
    "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
}
ACCEPTED = {OK, EINVAL, ECONTEXT}
ODD = [
    None,
    True,
    0,
    -1,
    1.5,
    1e400,
    "",
    "\0",
    "\ud800",
    "\U000f0000\U000f0001\U000f0002CONTINUE\U000f0003 ",
    "<|end|>",
    [],
    {},
    [[]],
    [None],
    {"": ""},
    {"role": "user"},
    {"a\0b": "\udfff"},
    "x" * 5000,
]


@pytest.fixture
def chat(lib, context):
    """Chats with raw bytes: the status and, if it fails, the message."""
    seen = []
    on_event = cow_mlx_event_fn(lambda event, _: seen.append(event.contents.kind) or True)
    params = cow_mlx_generation_params()
    lib.c.cow_mlx_generation_params_init(byref(params), sizeof(params))
    params.max_tokens = 1

    def chat(messages, options=None):
        seen.clear()
        stats = poisoned_struct(cow_mlx_stats)
        status = lib.c.cow_mlx_context_chat(
            context, messages, len(messages), byref(params), options, on_event, None, byref(stats)
        )
        if status == OK:
            return status, ""
        assert seen == []
        assert untouched(stats)
        message = lib.message()
        assert message.startswith("context_chat: "), message
        return status, message

    yield chat
    fox = json.dumps([{"role": "user", "content": "What colour is a fox?"}])
    assert lib.chat(context, fox).said() == "A fox is red."


def places(value, path=()):
    """The paths to every value inside a value, itself included."""
    yield path
    if not isinstance(value, dict | list):
        return
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield from places(item, (*path, key))


def replaced(value, path, new):
    """A copy of a value with another one at a path."""
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


def test_the_whole_of_it_is_answered(chat):
    assert chat(json.dumps(MESSAGES).encode(), json.dumps(OPTIONS).encode()) == (OK, "")


@pytest.mark.parametrize("which", ["messages", "options"])
def test_cut_anywhere_it_is_no_json(chat, which):
    good = json.dumps(MESSAGES).encode(), json.dumps(OPTIONS, ensure_ascii=False).encode()
    whole = good[which == "options"]
    for length in range(1, len(whole)):
        cut = whole[:length]
        arguments = (cut, good[1]) if which == "messages" else (good[0], cut)
        status, message = chat(*arguments)
        assert status == EINVAL
        assert f"{which}_json is no JSON" in message


@pytest.mark.parametrize("which", ["messages", "options"])
def test_flipped_bits(chat, which):
    draw = random.Random(which)
    good = [json.dumps(MESSAGES, ensure_ascii=False).encode(), json.dumps(OPTIONS).encode()]
    for _ in range(200):
        damaged = [bytearray(part) for part in good]
        target = damaged[which == "options"]
        for _ in range(draw.choice([1, 1, 2, 8])):
            target[draw.randrange(len(target))] ^= 1 << draw.randrange(8)
        assert chat(*map(bytes, damaged))[0] in ACCEPTED


def test_a_wrong_type_at_every_place_of_the_messages(chat):
    for path in places(MESSAGES):
        for odd in ODD:
            messages = json.dumps(replaced(MESSAGES, path, odd))
            status, message = chat(messages.encode())
            assert status in ACCEPTED, (path, odd, message)


def test_a_wrong_type_at_every_place_of_the_options(chat):
    messages = json.dumps(MESSAGES).encode()
    for path in places(OPTIONS):
        for odd in ODD:
            options = json.dumps(replaced(OPTIONS, path, odd))
            status, message = chat(messages, options.encode())
            assert status in ACCEPTED, (path, odd, message)


@pytest.mark.parametrize(
    "name",
    ["messages", "self", "loop", "range", "raise_exception", "bos_token", "__class__", "a b", ""],
)
def test_names_that_a_template_has_itself(chat, name):
    messages = json.dumps(MESSAGES).encode()
    for odd in ODD:
        assert chat(messages, json.dumps({name: odd}).encode())[0] in ACCEPTED


@pytest.mark.parametrize("depth", [100, 2000, 200_000])
@pytest.mark.parametrize("open_, close", [("[", "]"), ('{"a":', "}")])
def test_deep_nesting(chat, open_, close, depth):
    deep = open_ * depth + ("1" if close == "}" else "") + close * depth
    fox = '[{"role": "user", "content": "Hello!"}]'
    assert chat(f"[{deep}]".encode())[0] == EINVAL
    for content in (deep, f'"a", "tool_calls": {deep}'):
        messages = f'[{{"role": "user", "content": {content}}}]'
        assert chat(messages.encode())[0] in ACCEPTED
    for options in (deep, f'{{"tools": {deep}}}', f'{{"tools": [{{"function": {deep}}}]}}'):
        assert chat(fox.encode(), options.encode())[0] in ACCEPTED


@pytest.mark.parametrize("number", ["9" * 5000, "-1e99999", "NaN", "Infinity", "1." + "9" * 9000])
def test_extreme_numbers(chat, number):
    fox = '[{"role": "user", "content": "Hello!"}]'
    assert chat(f'[{{"role": "user", "content": {number}}}]'.encode())[0] == EINVAL
    for options in (f'{{"tools": [{{"n": {number}}}]}}', f'{{"n": {number}}}'):
        assert chat(fox.encode(), options.encode())[0] in ACCEPTED


@pytest.mark.parametrize(
    "data", [b"", b"\0", b" ", b"\xff\xfe[\0", b"\xef\xbb\xbf[]", b'["\xed\xa0\x80"]', b'["\xff"]']
)
def test_bytes_that_are_no_text(chat, data):
    status, message = chat(data)
    assert status == EINVAL
    assert "messages_json" in message


def test_control_characters_in_a_content_are_content(chat):
    messages = json.dumps([{"role": "user", "content": "a\0b\u2028\x7f\\"}])
    assert chat(messages.encode()) == (OK, "")
