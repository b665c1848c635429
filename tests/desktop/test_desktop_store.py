"""examples/desktop: conversations are kept on disk."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("desktop")

SUM, COW = "What is 3 + 4?", "What does a cow say?"
KEPT = "cowmlx-desktop/conversations"


def files(data: Path) -> list[Path]:
    """What is kept."""
    return sorted((data / KEPT).iterdir())


def test_a_conversation_is_kept_opened_renamed_and_deleted(start, model, tmp_path):
    data = tmp_path / "data"
    app = start(model)
    conversation = app.conversation()
    conversation.answer(SUM)
    app.press("F2")
    app.see(lambda: app.one("text box", "Title").focused, "the title in an entry")
    app.press("ctrl+a")
    app.type("Sums & <b>")
    app.press("Return")
    app.label("Sums & <b>")
    conversation.answer(COW)
    said = conversation.transcript.text
    app.press("ctrl+q")
    assert app.end() == (0, "")
    record, context = files(data)
    assert (record.suffix, context.suffix) == (".json", ".safetensors")
    kept = json.loads(record.read_text())
    assert kept["title"] == "Sums & <b>"
    roles = [message["role"] for message in kept["messages"]]
    assert roles == ["user", "assistant", "user", "assistant"]

    damaged = data / KEPT / "damaged.json"
    cut = record.read_bytes()[:-40]
    damaged.write_bytes(cut)
    gone = data / KEPT / "gone.json"
    gone.write_bytes(record.read_bytes())
    os.utime(gone, (0, 0))  # the last of the list
    app = start(model)
    assert str(damaged) in app.label("damaged")
    app.conversation()
    rows = app.see(lambda: app.find("list item")[1:], "the rows of what was kept")
    gone.unlink()
    app.click(rows[1])
    assert str(gone) in app.label("gone.json")
    app.see(lambda: len(app.find("list item")) == 2, "the row of the stored conversation")
    app.click(rows[0])
    conversation = app.conversation(1)
    app.see(lambda: conversation.entry.focused, "what was kept, in front")
    assert conversation.transcript.text == said
    conversation.answer(SUM)
    assert int(re.search(r"context, (\d+) reused", conversation.status.name)[1]) > 0

    app.press("ctrl+w")  # writes, and can be opened again
    app.see(lambda: len(app.find("group", "Transcript")) == 1, "one page")
    row = app.see(lambda: [r for r in app.find("list item")[1:] if r.sensitive], "its row")[0]
    context.write_bytes(b"damaged")
    app.click(row)
    assert str(context) in app.label("What was said will be processed again")
    app.see(lambda: app.conversation(1).transcript.text.startswith(said), "what was said")
    app.press("ctrl+d")
    app.press("alt+d", window="Delete a conversation")
    app.see(lambda: len(app.find("list item")) == 1, "one conversation")
    app.press("ctrl+q")
    assert app.end() == (0, "")
    assert files(data) == [damaged]
    assert damaged.read_bytes() == cut


def test_a_disk_that_takes_nothing_is_told_and_the_conversation_goes_on(start, model):
    app = start(model, data=Path("/dev/null"))
    app.label("/dev/null")
    conversation = app.conversation()
    conversation.ask(SUM)
    assert "This conversation is not kept: /dev/null" in conversation.wait_status("not kept")
    assert conversation.transcript.text.startswith(SUM)


@pytest.fixture(scope="session")
def store(build):
    """Runs the host of the store."""
    folder = Path(__file__).parent
    app = folder.parents[1] / "examples/desktop"
    host = build("store", [folder / "hosts/store_host.c", app / "store.c", app / "record.c"])

    def run(data: Path, *arguments: str) -> list[str]:
        environment = {"XDG_DATA_HOME": str(data), "LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            [host, *arguments], env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.stderr == ""
        return done.stdout.splitlines()

    return run


def test_a_full_disk_leaves_what_was_kept(store, tmp_path):
    failure, kept, *_ = store(tmp_path, "full")
    assert "File too large" in failure
    assert kept.endswith(": before")
    assert len(files(tmp_path)) == 1


def test_a_conversation_is_open_in_one_window(store, tmp_path):
    """Also behind a write, which makes a new file."""
    busy = "“{}” is open in another window"
    assert store(tmp_path, "twice") == [busy.format("first"), busy.format("First"), "First"]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b"[1, 2]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"version": 2, "title": "a", "messages": []}',
        b'{"version": 1, "title": 3, "messages": []}',
        b'{"version": 1, "title": "\\ud800", "messages": []}',
        b'{"version": 1, "title": "\\ud800 a", "messages": []}',
        b'{"version": 1, "title": "a", "messages": {}}',
        b'{"version": 1, "title": "a", "messages": [3, 4]}',
        b'{"version": 1, "title": "a", "messages": [{"role": "user", "content": "a"}]}',
        b'{"version": 1, "title": "a", "messages": [{"role": "user", "content": "a"}, '
        b'{"role": "assistant", "parts": [{"kind": "none", "text": "a"}]}]}',
    ],
)
def test_damaged_files_are_told_and_left(store, tmp_path, text):
    folder = tmp_path / KEPT
    folder.mkdir(parents=True)
    (folder / "one.json").write_bytes(text)
    (folder / "two.json").write_text('{"version": 1, "title": "whole", "messages": []}')
    (folder / "three.json").mkdir()
    kept, *problems = store(tmp_path)
    assert kept == "two: whole"
    assert {str(folder / "one.json"), str(folder / "three.json")} == {
        line.split(" is ")[0] for line in problems
    }
    assert (folder / "one.json").read_bytes() == text
