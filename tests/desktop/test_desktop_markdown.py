"""examples/desktop: answers are Markdown, and shown while they are written."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("desktop")

CODE = 'print("<b>&amp;")\n\nx = 1'
TEXT = f"""\
# A *title*

Some **bold _and_ slanted**, `a <b>&` and <b>&amp; and [here](http://x.y/?a&b).
The next line.

> quoted
- one
- two
  1. three
  2. four

```py
{CODE}
```
heading
---
***
<div>&</div>

| a | b |

```
**unclosed"""


@pytest.fixture(scope="session")
def show(build, session) -> Callable[..., list[str]]:
    """Shows Markdown that comes in parts of so many bytes; gives the widgets, a line each."""
    folder = Path(__file__).parent
    app = folder.parents[1] / "examples/desktop"
    parts = [app / f"{name}.c" for name in ("markdown", "widgets")]
    host = build("markdown", [folder / "hosts/markdown_host.c", *parts])

    def run(text: str, step: int = 1 << 20) -> list[str]:
        done = subprocess.run(
            [host, str(step)],
            input=text.encode(),
            capture_output=True,
            env=session.environment,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        return [line.strip() for line in done.stdout.decode().splitlines()]

    return run


def test_what_comes_in_parts_looks_as_what_comes_at_once(show):
    whole = show(TEXT)
    assert show(TEXT, 1) == whole
    assert show(TEXT, 7) == whole


def test_blocks_and_styles_become_widgets_and_markup(show):
    shown = show(TEXT)
    marked = '<span face=\\"monospace\\" background=\\"#808080\\" background_alpha=\\"16%\\">'
    assert shown[1:3] == ["[vertical h1]", "A <i>title</i>"]
    assert shown[4] == (
        f"Some <b>bold <i>and</i> slanted</b>, {marked}a &lt;b&gt;&amp;</span> and &lt;b&gt;&amp; "
        "and <u>here</u> (http://x.y/?a&amp;b).\\nThe next line."
    )
    for block in ("[vertical quote]", "[vertical list]", "[vertical h2]", "[horizontal]", "2."):
        assert block in shown
    assert "&lt;div&gt;&amp;&lt;/div&gt;" in shown
    code = shown.index("py")
    assert shown[code + 1 : code + 4] == [
        "button",
        "[vertical lines]",
        "print(&quot;&lt;b&gt;&amp;amp;&quot;)\\n\\nx = 1",
    ]
    assert shown[-1] == "**unclosed"


@pytest.mark.parametrize(
    "text",
    [
        "x" * 5000,
        "```\n" + "x = 1\n" * 5000,
        "> " * 3000 + "deep",
        "- " * 3000 + "deep",
        "*_" * 3000 + "deep" + "_*" * 3000,
        "[" * 3000 + "](<b>)" * 3000,
        "&#0;&#1;\x01\x7f\ufeff</b></span>",
    ],
    ids=["word", "code", "quotes", "lists", "emphasis", "links", "characters"],
)
def test_enormous_and_odd_text_is_shown(show, text):
    assert "[vertical blocks]" in show(text, 10_000)


def test_an_answer_is_rendered_and_its_code_copied(says, start):
    app = start(says("Code?", TEXT + "**\n```\nEnd."))
    conversation = app.conversation()
    conversation.ask("Code?")
    conversation.wait_status("tokens/s")
    lines = conversation.transcript.text.split("\n")
    assert lines[:3] == [
        "Code?",
        "A title",
        "Some bold and slanted, a <b>& and <b>& and here (http://x.y/?a&b).",
    ]
    assert CODE in conversation.transcript.text
    assert lines[-1] == "End."

    app.click(app.see(lambda: app.find("button", "Copy code"), "the buttons")[-1])
    app.click(conversation.entry)
    app.press("ctrl+v")
    app.see(lambda: conversation.entry.text == "**unclosed**\n", "the code in the entry")
