"""Calls on separate threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from support.library import StatusError


def together(*works: Callable[[], Any]) -> None:
    """Run functions on a thread each, all begun together; raise what one raised."""
    barrier = threading.Barrier(len(works))
    errors: list[BaseException] = []

    def run(work: Callable[[], Any]) -> None:
        barrier.wait()
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def at_once(count: int, work: Callable[[int], Any]) -> None:
    """Run ``work(i)`` on as many threads, all begun together; raise what one raised."""
    together(*(partial(work, index) for index in range(count)))


class Working:
    """A call on a separate thread, and the status that it ended with."""

    def __init__(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self.status: int | None = None

        def run() -> None:
            try:
                call(*args, **kwargs)
                self.status = 0
            except StatusError as error:
                self.status = error.status

        self._thread = threading.Thread(target=run)
        self._thread.start()

    def ended(self) -> int | None:
        """Wait for the call's end; its status."""
        self._thread.join()
        return self.status
