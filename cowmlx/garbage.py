"""When Python looks for garbage: not amid imports and loading, which make much and leave none."""

from __future__ import annotations

import gc
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator


@contextmanager
def left_alone() -> Generator[None, None, None]:
    """Look for no garbage meanwhile."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def collect_from_now() -> None:
    """Look for garbage, from the first time on only among what is made from then on."""
    if not gc.get_freeze_count():
        gc.freeze()
    gc.enable()
