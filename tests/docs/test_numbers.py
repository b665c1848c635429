"""Numbers in the guides that come from the code."""

from __future__ import annotations

from support.paths import ROOT

from cowmlx.generation.prompt import SHORT_PROMPT


def test_short_prompts_have_the_length_that_the_guides_name():
    for name in ("docs/guides/threads.md", "CHANGELOG.md"):
        words = " ".join((ROOT / name).read_text().lower().split())
        assert f"prompts of up to {SHORT_PROMPT} tokens" in words
