"""Finds out what is wrong with an installation, however broken it is.

Nothing here imports mlx or the engine: whatever may crash runs in a process of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

OK, NOTE, PROBLEM = "ok", "note", "problem"


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes:
        check: what was looked at.
        state: ``ok``, ``note`` (works, but not as one would expect) or ``problem``.
        text: what was found.
        advice: what to do about it; "" if nothing.
    """

    check: str
    state: str
    text: str
    advice: str = ""
