"""Takes the picture of the desktop app: python tests/desktop/picture.py PROGRAM MODEL PNG.

The app runs on a desktop without a screen, as in the tests, with a user's eyes and hands. One of
its conversations was kept, so that there is Markdown whatever the model can write.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from app import App
from PIL import ImageGrab
from xsession import XSession

QUESTION = "How do I read a file in C?"
ANSWER = """\
Open it, and read **until there is nothing left**; `fgets` takes a line at a time:

```c
FILE* file = fopen("notes.txt", "r");
char line[256];
while (file && fgets(line, sizeof line, file)) puts(line);
```

- A file that is not there gives `NULL`.
- Close it *when you are done*: `fclose(file)`.
"""
ASKED = ("What is the capital of France?", "What is 12 + 5?")


def keep(data: Path) -> None:
    """Write a conversation as the app does."""
    folder = data / "cowmlx-desktop/conversations"
    folder.mkdir(parents=True)
    messages = [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": ANSWER, "whole": True},
    ]
    record = {"version": 1, "title": "Files in C", "messages": messages}
    (folder / "kept.json").write_text(json.dumps(record))


def main() -> None:
    """Talk, open what was kept, and take the picture."""
    program, model, picture = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        session = XSession(Path(folder))
        keep(Path(folder) / "data")
        app = App(session, program, model, data=Path(folder) / "data")
        try:
            first = app.conversation()
            for question in ASKED:
                first.ask(question)
                first.wait_status("tokens/s")
            app.click(app.see(lambda: app.find("list item")[1:], "what was kept")[0])
            app.label(QUESTION)
            kept = app.conversation(1)
            kept.ask("What does a cow say?")
            kept.wait_status("tokens/s")
            app.label("notes.txt")
            box = (4, 4, 896, 596)  # without the shadow
            ImageGrab.grab(box, xdisplay=session.environment["DISPLAY"]).save(picture)
        finally:
            app.kill()
            session.stop()


if __name__ == "__main__":
    main()
