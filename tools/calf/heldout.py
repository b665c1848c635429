"""The held-out questions of calf: what they are, and when an answer to one is right."""

import json
import random

from tools.calf import corpus, world
from tools.calf.corpus import ask, say
from tools.calf.world import a

CHATS = (corpus.short_chat, corpus.persona_chat, corpus.memory_chat, corpus.follow_chat)


def heldout(seed, rounds):
    """Held-out questions, one of every kind in each round, in a repeating order of kinds."""
    rng = random.Random(seed)
    for _ in range(rounds):
        for topic in corpus.TOPICS:
            if topic is not corpus.ask_greeting:
                yield single(ask(rng, True, {topic: 1}))
        for kind in CHATS:
            yield last_turn(kind(rng, True), kind.__name__.removesuffix("_chat"))
        chat = corpus.tool_chat(rng, True)
        yield last_turn(chat, "tool_answer")
        yield last_turn({**chat, "messages": chat["messages"][:-2]}, "tool_call", "tool_call")


def single(question):
    """A held-out question without context as an entry of `heldout.json`."""
    expected = question.answer
    if question.match == "json":
        expected = json.loads(expected)
    elif question.match == "contains":
        expected = next(animal for animal in world.ANIMALS if f" {a(animal)}" in question.text)
    messages = [say("user", question.text)]
    return {"kind": question.kind, "messages": messages, "match": question.match,
            "expected": expected}  # fmt: skip


def last_turn(chat, kind, match="exact"):
    """A held-out conversation, asked for its last turn, as an entry of `heldout.json`."""
    *messages, last = chat["messages"]
    expected = last["tool_calls"][0]["function"] if match == "tool_call" else last["content"]
    tools = {"tools": chat["tools"]} if "tools" in chat else {}
    return {"kind": kind, "messages": messages, **tools, "match": match, "expected": expected}


def matches(entry, text):
    """Whether an answer is right by the rule of its entry."""
    expected = entry["expected"]
    try:
        match entry["match"]:
            case "exact":
                return text == expected
            case "contains":
                return expected in text
            case "json":
                return json.loads(text) == expected
            case "tool_call":
                call = text.removeprefix("<tool_call>").removesuffix("</tool_call>")
                return json.loads(call) == expected
    except json.JSONDecodeError:
        return False
    raise ValueError(f"unknown rule {entry['match']}")


def expected_text(entry):
    """The expected answer as the text to be generated, or None if there are many."""
    expected = entry["expected"]
    forms = {
        "exact": lambda: expected,
        "contains": lambda: None,
        "json": lambda: json.dumps(expected),
        "tool_call": lambda: f"<tool_call>\n{json.dumps(expected)}\n</tool_call>",
    }
    return forms[entry["match"]]()
