"""Generations within a real limit of memory, set once the model is loaded.

Arguments: a model's folder; RLIMIT_AS, or the folder of a control group. Prints, as JSON, the
statuses of a short generation, of one whose max_tokens do not fit, what bounds that, and the status
of a short one after it.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

from support import groups
from support.library import Library, StatusError

MORE = 128 << 20  # bytes that the process may take once the model is loaded
TOKENS = 8000

lib = Library()


def limit(how: str) -> None:
    """Bound the process."""
    if how == "RLIMIT_AS":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        size = pages * resource.getpagesize() + MORE
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
    else:
        groups.bound(Path(how), groups.usage(Path(how)) + MORE)


def status(context: int, max_tokens: int) -> list[str]:
    """Begin; the status, and what a refusal says."""
    try:
        lib.begin(context, [20, 21, 22], max_tokens=max_tokens)
        return ["OK"]
    except StatusError as error:
        names = "RLIMIT_AS", "the limit of the control group"
        bounds = [name for name in names if name in error.message]
        assert error.details["needed"] > error.details["available"] > 0
        return [error.name, *bounds]


def main(folder: str, how: str) -> None:
    """Generate with and without enough memory."""
    if how != "RLIMIT_AS":
        groups.enter(Path(how))
    lib.start()
    model = lib.load(folder)
    context = lib.context(model)
    answers = status(context, 10)
    limit(how)
    answers += status(context, TOKENS)
    answers += status(context, 10)
    print(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
