"""The desktop app, with a user's eyes and hands."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from accessibility import Gone, Widget
from xsession import XSession, wait_for

T = TypeVar("T")


class App:
    """The app as it runs, alone on its desktop.

    Args:
        session: the desktop.
        arguments: the command that starts it.
        data: the folder below which it keeps conversations.
    """

    def __init__(self, session: XSession, *arguments: str | Path, data: Path) -> None:
        self.session = session
        with tempfile.TemporaryFile() as output:
            self._output = os.dup(output.fileno())
            self.process = subprocess.Popen(
                arguments,
                env={**session.environment, "XDG_DATA_HOME": str(data)},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    # Eyes.

    def see(self, look: Callable[[], T], what: str) -> T:
        """Wait until a look gives something; widgets may come and go meanwhile.

        Raises:
            AssertionError: it never does; the message tells what the app shows and printed.
        """

        def unless_gone() -> T | None:
            ended = self.process.poll()
            assert ended is None, f"ended with {ended}"
            try:
                return look()
            except Gone:
                return None

        try:
            return wait_for(unless_gone, what)  # type: ignore[return-value]
        except AssertionError as exc:
            raise AssertionError(f"{exc}\n{self._account()}") from None

    def _account(self) -> str:
        """What the app shows and printed, for the message of a test that fails."""
        try:
            shown = [f"{widget.role}: {widget.name}" for widget in self.session.bus.widgets()]
        except (Gone, OSError) as exc:
            shown = [f"unreadable: {exc}"]
        return "\n  ".join(["it shows:", *shown]) + f"\nit printed:\n{self._printed()}"

    def _printed(self) -> str:
        """All that the app printed; the position in the file stays, since the app shares it."""
        size = os.fstat(self._output).st_size
        return os.pread(self._output, size, 0).decode("utf-8", "replace")

    def find(self, role: str, name: str | None = None) -> list[Widget]:
        """The widgets of a role and, if one is given, a name."""
        widgets = [widget for widget in self.session.bus.widgets() if widget.role == role]
        return [widget for widget in widgets if name in (None, widget.name)]

    def lacks(self, role: str, name: str | None = None) -> None:
        """Wait until there is no such widget."""
        self.see(lambda: not self.find(role, name), f"no {role} {name or ''}")

    def has_closed(self) -> bool:
        """Whether the app has ended or has no window; widgets may go meanwhile."""
        try:
            return self.process.poll() is not None or not self.find("window")
        except Gone:
            return False

    def one(self, role: str, name: str | None = None) -> Widget:
        """Wait for such a widget."""
        return self.see(lambda: self.find(role, name), f"a {role} {name or ''}")[0]

    def label(self, part: str) -> str:
        """Wait for a label with a text in it, and give all that it shows."""
        labels = self.see(
            lambda: [shown.name for shown in self.find("label") if part in shown.name],
            f"{part!r} on a label",
        )
        return labels[0]

    def conversation(self, index: int = 0) -> Conversation:
        """Wait for a conversation, in the order in which they were opened."""
        return self.see(lambda: self._conversation(index), f"conversation {index}")

    def _conversation(self, index: int) -> Conversation | None:
        widgets = [(widget, widget.role, widget.name) for widget in self.session.bus.widgets()]
        starts = [i for i, (_, _, name) in enumerate(widgets) if name == "Transcript"]
        if len(starts) <= index:
            return None
        page = widgets[starts[index] :]
        at = next((i for i, (_, role, _) in enumerate(page) if role == "text box"), 0)
        labels = [widget for widget, role, _ in page[:at] if role == "label"]
        buttons = [widget for widget, role, _ in page[at:] if role == "button"]
        rows = [widget for widget, role, _ in widgets if role == "list item"]  # the last first
        if not labels or not buttons or len(rows) < len(starts):
            return None  # the window changed while it was read
        row = rows[len(starts) - 1 - index]
        transcript = Transcript(page[0][0])
        return Conversation(self, row, transcript, labels[-1], page[at][0], buttons[0])

    # Hands.

    def press(self, key: str, window: str = ".") -> None:
        """Press a key, such as "ctrl+n", in the window with such a title."""
        self._hand_keys_to(window)
        self.session.do("key", key)

    def type(self, text: str, window: str = ".") -> None:
        """Type a text in the window with such a title."""
        self._hand_keys_to(window)
        self.session.do("type", "--delay", 2, text)

    def click(self, widget: Widget) -> None:
        """Click a widget, once it has come to its place."""
        places = [(0, 0)]

        def is_still() -> bool:
            places.append(widget.centre)
            return places[-1] == places[-2]

        self.see(is_still, "the widget in its place")
        self.session.do("mousemove", *places[-1], "click", 1)

    def resize(self, width: int, height: int) -> None:
        """Give the window another size, as a user does at its corner."""
        self.session.do("windowsize", "--sync", self._window("."), width, height)

    def _window(self, title: str) -> str:
        """Wait for a window with such a title."""
        search = ("search", "--onlyvisible", "--name", title)
        shown = self.see(lambda: self.session.do(*search, check=False), f"a window {title!r}")
        return shown.split()[0]

    def _hand_keys_to(self, window: str) -> None:
        """Do what a window manager would do."""
        self.session.do("windowfocus", "--sync", self._window(window))

    # The process.

    def end(self) -> tuple[int, str]:
        """Wait until it ends by itself; gives its exit status and all that it printed."""
        try:
            return self.process.wait(timeout=60), self._printed()
        except subprocess.TimeoutExpired as exc:
            raise AssertionError(f"{exc}\n{self._account()}") from None

    def kill(self) -> None:
        """End it, if it still runs."""
        self.process.kill()
        self.process.wait()
        os.close(self._output)


@dataclass(frozen=True)
class Transcript:
    """All that was said in a conversation."""

    box: Widget

    @property
    def text(self) -> str:
        """What its labels show, a line or more for each."""
        return "\n".join(widget.name for widget in self.box.inside if widget.role == "label")


@dataclass(frozen=True)
class Conversation:
    """One of the conversations in the window."""

    app: App
    row: Widget
    transcript: Transcript
    status: Widget
    entry: Widget
    button: Widget

    def enter(self, text: str) -> None:
        """Type a text, and Enter; the conversation is the one in front."""
        self.app.see(lambda: self.entry.focused, "the keys in the entry")
        self.app.type(text)
        self.app.press("Return")

    def ask(self, question: str) -> None:
        """Enter a question, and wait until it is being answered."""
        self.enter(question)
        self.app.see(lambda: not self.entry.text, f"{question!r} being sent")

    def answer(self, question: str) -> str:
        """Ask, wait until the answer has ended, and give its last line."""
        self.ask(question)
        self.wait_status("tokens/s")
        return self.transcript.text.split("\n")[-1]

    def wait_status(self, part: str) -> str:
        """Wait until the status line says something, and give all of it."""

        def look() -> str:
            shown = self.status.name
            return shown if part in shown else ""

        return self.app.see(look, f"{part!r} in the status line")

    def wait_growth(self) -> None:
        """Wait until its text is longer than now."""
        before = len(self.transcript.text)
        self.app.see(lambda: len(self.transcript.text) > before, "more text")
