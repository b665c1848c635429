"""When a Python of our own looks for garbage: not amid imports and loading, which leave none.

Of a host's Python this is the host's: while the setting were ours for a moment, a thread of the
host that kept it and put it back, as timeit does, would keep ours for good.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator


@contextmanager
def left_alone(is_own: bool) -> Generator[None, None, None]:
    """Look for no garbage meanwhile, in a Python of our own."""
    if not is_own:
        yield
        return
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def collect_from_now() -> None:
    """Look for garbage, from the first time on only among what is made from then on.

    For a Python of our own alone.
    """
    if not gc.get_freeze_count():
        gc.freeze()
    gc.enable()
