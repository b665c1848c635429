"""``python -m cowmlx chat --draft``, ``--draft-tokens`` and ``--draft-heads``."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from support.paths import CALF, ROOT


def chat(*options):
    command = [sys.executable, "-m", "cowmlx", "chat", str(CALF), "--temperature", "0", "--json"]
    return subprocess.run(
        [*command, *options, "-p", "Tell me a story about a fox."],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def answer(*options):
    """The text, and what is said at its end."""
    done = chat(*options)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    return "".join(event["text"] for event in events if event["event"] == "text"), events[-1]


def test_drafts_are_accepted_and_change_no_answer():
    text, plain = answer()
    assert (plain["drafted_tokens"], plain["accepted_tokens"]) == (0, 0)
    for options in (["--draft", str(CALF), "--draft-tokens", "3"], ["--draft-tokens", "2"]):
        drafted, end = answer(*options)
        assert drafted == text
        assert end["drafted_tokens"] >= end["accepted_tokens"] > 0, options


def test_a_model_without_heads_is_refused_as_unsupported():
    done = chat("--draft-heads", "--checkpoint-interval", "64")
    assert done.returncode == 4
    assert "head" in done.stderr
