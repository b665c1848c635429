"""``python -m cowmlx chat --thinking-tokens``."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from support import scripted
from support.paths import ROOT
from support.signatures import PARSE_SPECIAL

ASKED = "Is it raining in Oslo?"


def test_the_chat_cuts_thinking_and_reports_it(lib, tmp_path):
    folder = scripted.make(tmp_path / "model", scripted.CHATML, ["<think>", "</think>"])
    asked = lib.load(folder)
    prompt = lib.chat_prompt(asked, [{"role": "user", "content": ASKED}])
    end = lib.info(asked)["end_tokens"][0]["text"]
    said = lib.tokenize(asked, f"<think>a b c d</think>It rains.{end}", PARSE_SPECIAL)
    lib.free_model(asked)
    scripted.tell(folder, len(prompt), said)
    command = [sys.executable, "-m", "cowmlx", "chat", str(folder), "--temperature", "0", "--json"]
    options = ["--thinking-tokens", "2", "--thinking-end-text", " Enough."]
    done = subprocess.run(
        [*command, *options, "-p", ASKED],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    names = [event["event"] for event in events]
    assert names.count("thinking_cut") == 1
    thought = "".join(event["text"] for event in events if event["event"] == "reasoning")
    assert thought.endswith(" Enough.") and "c d" not in thought
    assert "reasoning" not in names[names.index("thinking_cut") :]
    assert "text" in names
