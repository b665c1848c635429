"""Output of a chat: Markdown as it streams where rich is installed, plain text elsewhere."""

from __future__ import annotations

import json
import re
import sys
import time
from typing import Any

from cowmlx import json_text
from cowmlx.commands.chat.conversation import Answer
from cowmlx.host.generated import declarations as abi

FINISHES = {
    abi.FINISH_STOP: "stop",
    abi.FINISH_STOP_TEXT: "stop_text",
    abi.FINISH_LENGTH: "length",
    abi.FINISH_CONTEXT: "context",
    abi.FINISH_TIMEOUT: "timeout",
}
_COUNTS = (
    *("prompt_tokens", "reused_tokens", "generated_tokens"),
    *("drafted_tokens", "accepted_tokens"),
)
_TIMES = ("prompt_seconds", "generation_seconds")
_REFRESH = 0.08  # seconds between two looks at an answer that comes
_JOINERS = "\n\u200d\ufe0f"  # besides what is printable


def shown(text: str) -> str:
    """Leave out control characters of terminals: a model may say anything."""
    text = text.replace("\t", "    ")
    return "".join(char for char in text if char.isprintable() or char in _JOINERS)


class PlainScreen:
    """Text as it comes, without a style."""

    def __init__(self) -> None:
        self._thinking = False

    def note(self, text: str) -> None:
        """Show a text about the chat itself."""
        print(shown(text), flush=True)

    def prompt(self, processed: int, total: int) -> None:
        """Show how a long prompt advances; plain text has no place for it."""

    def begin(self) -> None:
        """An answer begins."""
        self._thinking = False

    def reasoning(self, text: str, *, folded: bool) -> None:
        """Show a part of the reasoning."""
        if not self._thinking:
            self._write("(thinking)\n")
        self._thinking = True
        if not folded:
            self._write(shown(text))

    def thinking_cut(self) -> None:
        """The budget of the thinking was used up."""

    def text(self, text: str) -> None:
        """A part of the answer."""
        self._write(shown(text))

    def tool_call(self, name: str, arguments: str) -> None:
        """A tool is to be called."""
        self._write(f"\n-> {shown(name)}({shown(arguments)})")

    def end(self) -> None:
        """The answer has ended."""
        self._write("\n")

    def finished(self, answer: Answer) -> None:
        """The answer is whole."""

    def error(self, status: str, message: str) -> None:
        """An error ends the chat; the command reports it."""

    def close(self) -> None:
        """Nothing more comes."""

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


class _JsonScreen(PlainScreen):
    """Events as they come, one JSON object a line."""

    def note(self, text: str) -> None:
        self._event("note", text=text)

    def reasoning(self, text: str, *, folded: bool) -> None:
        self._event("reasoning", text=text)

    def thinking_cut(self) -> None:
        self._event("thinking_cut")

    def text(self, text: str) -> None:
        self._event("text", text=text)

    def tool_call(self, name: str, arguments: str) -> None:
        self._event("tool_call", name=name, arguments=json_text.parse(arguments))

    def end(self) -> None:
        """Do nothing: :meth:`finished` reports the end."""

    def finished(self, answer: Answer) -> None:
        stats = {name: getattr(answer.stats, name) for name in (*_COUNTS, *_TIMES)}
        self._event("end", finish=FINISHES.get(answer.finish, "canceled"), **stats)

    def error(self, status: str, message: str) -> None:
        self._event("error", status=status, message=message)

    def _event(self, event: str, **members: Any) -> None:
        self._write(json.dumps({"event": event, **members}) + "\n")


class _RichScreen(PlainScreen):
    """Markdown that is drawn again as it grows; blocks that are complete stay as they are."""

    def __init__(self, console: Any = None) -> None:
        from rich.console import Console

        super().__init__()
        self.console = console or Console(highlight=False)
        self._live: Any = None
        self._pending = ""
        self._drawn = 0.0
        self._thought = 0
        self._since = 0.0

    def note(self, text: str) -> None:
        from rich.text import Text

        self.console.print(Text(shown(text), style="dim"))

    def prompt(self, processed: int, total: int) -> None:
        if processed < total:
            self._draw(self._dim(f"reading {processed:,} of {total:,} tokens"))

    def begin(self) -> None:
        from rich.live import Live

        self._pending, self._thought, self._since = "", 0, time.monotonic()
        # Drawn when something comes, not by a thread.
        self._live = Live(console=self.console, auto_refresh=False, transient=True)
        self._live.start()

    def reasoning(self, text: str, *, folded: bool) -> None:
        if not folded:
            self._live.console.print(self._dim(shown(text)), end="")
            return
        self._thought += len(text)
        self._draw(self._dim(f"thinking … {self._thought:,} characters"))

    def text(self, text: str) -> None:
        """Draw the last block again, and print those before it for good."""
        from rich.markdown import Markdown

        self._print_thought()
        done, self._pending = split_blocks(self._pending + shown(text))
        if done:
            self._live.update("")
            self._live.console.print(Markdown(done))
            self._live.console.print()
        if done or time.monotonic() - self._drawn > _REFRESH:
            self._draw(Markdown(self._pending), now=True)

    def tool_call(self, name: str, arguments: str) -> None:
        from rich.text import Text

        self._settle()
        line = Text("→ ", style="cyan") + Text(shown(name), style="bold cyan")
        self._live.console.print(line + Text(f"({shown(arguments)})"))

    def end(self) -> None:
        self._settle()
        self.close()

    def close(self) -> None:
        if self._live is not None:
            self._live.update("")
            self._live.stop()
            self._live = None

    def _settle(self) -> None:
        from rich.markdown import Markdown

        self._print_thought()
        self._live.update("", refresh=True)
        if self._pending.strip():
            self._live.console.print(Markdown(self._pending))
        self._pending = ""

    def _print_thought(self) -> None:
        if self._thought:
            seconds = time.monotonic() - self._since
            self._live.update("")
            self._live.console.print(self._dim(f"thought for {seconds:.1f} s (/think shows it)"))
            self._thought = 0

    def _draw(self, what: Any, *, now: bool = False) -> None:
        if now or time.monotonic() - self._drawn > _REFRESH:
            self._live.update(what, refresh=True)
            self._drawn = time.monotonic()

    def _dim(self, text: str) -> Any:
        from rich.text import Text

        return Text(text, style="dim")


def screen(*, as_json: bool) -> PlainScreen:
    """Return JSON lines, Markdown on terminals where rich is installed, or plain text."""
    if as_json:
        return _JsonScreen()
    if sys.stdout.isatty():
        try:
            return _RichScreen()
        except ModuleNotFoundError:
            pass
    return PlainScreen()


_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_LISTED = re.compile(r"(?: {2,}|\t|[-*+] |\d{1,9}[.)] )")


def split_blocks(text: str) -> tuple[str, str]:
    """Split a Markdown text that grows: blocks that are complete, and the rest.

    A block ends at an empty line outside of fenced code, unless the next line continues a list:
    items stay numbered so.
    """
    lines = text.split("\n")
    fence = ""
    cut = 0
    for at, line in enumerate(lines[:-1]):
        if match := _FENCE.fullmatch(line):
            marks, rest = match.groups()
            if not fence:
                fence = marks
            elif marks.startswith(fence) and not rest.strip():
                fence = ""
        following = lines[at + 1]
        if not line.strip() and not fence and following.strip() and not _LISTED.match(following):
            cut = at + 1
    return "\n".join(lines[:cut]).strip("\n"), "\n".join(lines[cut:])
