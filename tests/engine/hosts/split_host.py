"""A separate host with a model on several machines: argv: what to do, folder, worker, secret."""

from __future__ import annotations

import os
import sys

from support.library import Library

# Which report of a stage the host stays in: ranks of workers run by then.
LATE = {"connect": 3, "shard": 1}


def main() -> None:
    """Generate, say so, and then end as is asked; or stay in a stage of the load."""
    what, folder, worker, secret = sys.argv[1:]
    lib = Library()
    lib.start()
    told: list[str] = []

    def progress(fraction: float, stage: str) -> None:
        told.append(stage)
        if what == stage and told.count(stage) == LATE.get(stage):
            print("generates", flush=True)
            sys.stdin.read()

    workers = [worker, "127.0.0.1:9"] if what == "connect" else [worker]
    model = lib.load(folder, progress=progress, workers=workers, secret_path=secret)
    context = lib.context(model)
    lib.begin(context, [20, 30, 40], max_tokens=1 << 40)
    lib.next(context)
    if what == "fork":
        child = os.fork()
        if not child:
            sys.exit(0)  # as a program in Python ends: what is to be seen to at the end is
        os.waitpid(child, 0)
        for _ in range(20):
            lib.next(context)
        if not os.fork():
            sys.stdin.read()
            os._exit(0)
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
