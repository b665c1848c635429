"""What the stream examples print, whatever language they are written in."""

from __future__ import annotations

import pytest

from support.library import Library

TEXT = "Once upon a time"
STOPPED_AT = 20  # bytes, after which every example cancels


@pytest.fixture(scope="session")
def story(lib: Library, calf: int) -> str:
    """What a C host gets for TEXT from ``models/calf``."""
    context = lib.context(calf)
    text = lib.generate(context, lib.tokenize(calf, TEXT, flags=1)).text
    lib.free(context)
    assert len(text) > 2 * STOPPED_AT
    return text


def check_streamed(output: str, story: str) -> None:
    """The whole text and a note, then a beginning of the same text, and that it was cancelled."""
    whole, note, rest = output.partition("\n[")
    assert (whole, note) == (story, "\n[")
    beginning, _, end = rest.partition("]\n")[2].partition("\n[")
    assert end == "canceled]\n"
    assert STOPPED_AT <= len(beginning) < len(story)
    assert story.startswith(beginning)
