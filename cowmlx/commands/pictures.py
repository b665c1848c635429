"""Pictures of graphs: DOT as it is, other formats made by Graphviz."""

from __future__ import annotations

import os
import shutil
import subprocess

from cowmlx.commands import terminal
from cowmlx.commands.terminal import CommandError

# Endings of files and what Graphviz calls their formats; DOT itself needs no Graphviz.
PICTURES = {".svg": "svg", ".png": "png", ".pdf": "pdf"}
DOT = (".dot", ".gv")


def require_ending(output: str | None) -> None:
    """Check the ending of a file's name, before anything is drawn.

    Raises:
        CommandError: no picture has it.
    """
    if output is not None and _ending(output) not in (*DOT, *PICTURES):
        raise CommandError(f"cannot draw {output}: a name ends with {', '.join((*DOT, *PICTURES))}")


def save(drawing: str, output: str | None) -> None:
    """Write a drawing in DOT to a file, in the format of its ending; print it without one.

    Raises:
        CommandError: Graphviz is missing, or cannot draw it.
    """
    if output is None:
        terminal.write(drawing)
        return
    data = drawing.encode("utf-8", "replace")
    if _ending(output) in PICTURES:
        data = _rendered(data, PICTURES[_ending(output)])
    with open(output, "wb") as file:
        file.write(data)


def _ending(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def _rendered(drawing: bytes, kind: str) -> bytes:
    program = shutil.which("dot")
    if program is None:
        raise CommandError(
            f"Graphviz makes {kind} pictures, and its program dot is not installed; "
            "a .dot file needs none"
        )
    done = subprocess.run([program, f"-T{kind}"], input=drawing, capture_output=True)
    if done.returncode or not done.stdout:
        told = done.stderr.decode(errors="replace").strip() or f"exit status {done.returncode}"
        raise CommandError(f"{program} cannot draw this: {told}")
    return done.stdout
