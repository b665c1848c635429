"""What hosts/everything.* print in every language: the numbers that C gives for the same calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from support import signatures
from support.library import Library
from support.scoring import hidden_states, perplexity, prompt_logprobs

PROMPT = "Once upon a time"
MESSAGES = [{"role": "user", "content": "What is 3 + 4?"}]
RANKED = "{query} {document}"


def expected(lib: Library, calf: int) -> dict[str, Any]:
    """All that a host says, by its names for it."""
    prompt = lib.tokenize(calf, PROMPT, flags=signatures.ADD_SPECIAL)
    context = lib.context(calf, max_tokens=512)
    greedy = lib.generate(context, prompt, max_tokens=24).text
    answer = lib.chat(context, MESSAGES, max_tokens=40)
    embedded = lib.embed(calf, ["fox", "frog"], pooling=signatures.POOLING_LAST, normalize=False)
    ranked = lib.rank(
        calf, "a fox", ["fox", "frog"], prompt=RANKED, yes="a", no="b", normalize=False
    )
    return {
        "versions": [True, 1, lib.info()["device"]],
        "stages": True,
        "inspected": True,
        "tokens": prompt,
        "text": PROMPT,
        "ends": [False, True],
        "embedded": [[len(row), rounded(row[0])] for row in embedded],
        "none": 0,
        "ranked": [[len(row), rounded(row[0])] for row in ranked],
        "candidates": 2,
        **sampled(lib, context, prompt),
        "logits": True,
        "scored": scored(lib, calf, prompt),
        "greedy": greedy,
        "stats": [len(prompt), 24, 24],
        "prompt": lib.chat_prompt(calf, MESSAGES),
        "answer": answer.said(),
        "end": "stop",
        "polled": [True, True, True, True],
        "trimmed": [2, 1, 2],
        "held": [5, 5, 5],
        **REFUSED,
        **NUMBERS,
        "adapted": True,
        "image": [2, 1, 3, True, "shape_mismatch"],
        "logged": True,
        "closed": "EHANDLE",
        "stopped": "not_running",
    }


REFUSED = {
    "refused": ["EINVAL", "out_of_range", "above 0 and at most 1"],
    "unknown": "unknown_option",
    "thrown": "mine",
    "canceled": "AbortError",
    "shape": "conflict",
    "strides": "conflict",
}

# What arrays, programs and trainings give; of the gradient at w = (0.5, 0, -0.5) the errors are
# (-2, 0), so that the loss is 4, and each slope -4 times the first row.
NUMBERS = {
    "arrays": ["float32", [2, 3], [2, 4, 6, 8, 10, 12], [1, 4, 2, 5, 3, 6], "int32"],
    "file": ["sum", "turned"],
    "viewed": [2, 4, 6, 8, 10, 12],
    "operations": 297,  # four of control flow among them
    "gradient": [4, -4, -8, -12],
    "bound": [True, 4],
    "program": [],
    "step": ["step", 1, 22.5],
    "fit": [40, "end", True],
    "resumed": 40,
    "evaluated": True,
}


def sampled(lib: Library, context: int, prompt: Sequence[int]) -> dict[str, Any]:
    """What the options of a generation make."""
    lib.begin(
        context,
        prompt,
        max_tokens=24,
        temperature=0.8,
        seed=7,
        logprobs=2,
        bias={prompt[1]: -1.0},
        stop=["\n\n", "zebra"],
    )
    pieces = lib.drain(context)
    return {
        "generated": [piece.token for piece in pieces[:-1]],
        "finish": "length",
        "logprob": rounded(pieces[0].logprob),
    }


def scored(lib: Library, calf: int, prompt: list[int]) -> list[Any]:
    """Rows and their length, a log probability, the sizes of the rest, and a perplexity."""
    context = lib.context(calf)
    rows = prompt_logprobs(lib, context, prompt, top=2)
    vocabulary = lib.info(calf)["vocabulary_size"]
    width = len(hidden_states(lib, context, prompt)[0])
    found, _, count = perplexity(lib, context, PROMPT)
    sizes = [2 * vocabulary, len(prompt) * width]
    held = [-1, *prompt[1:]]
    return [held, len(rows), 3, rounded(rows[1][0][1]), *sizes, rounded(found / 1e4), count]


def rounded(number: float) -> float:
    """To the digits that hosts print."""
    return round(number * 1e4) / 1e4
