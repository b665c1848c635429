"""A host of its own with a model on several machines: argv: what to do, folder, worker, secret."""

from __future__ import annotations

import sys

from support.library import Library


def main() -> None:
    """Generate, tell the ranks by a line, and then end as is asked."""
    what, folder, worker, secret = sys.argv[1:]
    lib = Library()
    lib.start()
    model = lib.load(folder, workers=[worker], secret_path=secret)
    context = lib.context(model)
    lib.begin(context, [20, 30, 40], max_tokens=1 << 40)
    lib.next(context)
    print("generates", flush=True)
    if what == "stop":
        lib.stop()
        print("stopped", flush=True)
        sys.stdin.read()
    else:
        while True:
            lib.next(context)


if __name__ == "__main__":
    main()
