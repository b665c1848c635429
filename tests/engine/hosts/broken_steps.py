"""A host in whose Python a step of the engine raises while calls wait.

Arguments: a model's folder, and the name of a fault. Writes JSON: how each waiting call ended, the
log's warnings, the open handles afterwards, and what is generated then and before.
"""

import json
import pathlib
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

from support.callbacks import StatusError
from support.library import Library
from support.signatures import LOG_WARNING

PROMPT = [5, 6, 7]
WAITING = 3


def broken(*arguments):
    raise RuntimeError("broken")


def faults():
    """By name: a class of the engine, and which of its methods raises."""
    from cowmlx.engine import Engine
    from cowmlx.generation.waiters import GenerateWaiter
    from cowmlx.scheduling.lane import Lane
    from cowmlx.scheduling.scheduler import Scheduler

    return {
        "step": (Scheduler, "step"),
        "turn": (Lane, "turn"),
        "step and what frees": (Scheduler, "step", (Engine, "free_all")),
        "lane": (Lane, "step"),
        "event": (GenerateWaiter, "_report_progress"),
    }


def break_once(kind, name, *more):
    """Let a method raise at its next call."""
    method = getattr(kind, name)

    def fail(*arguments):
        setattr(kind, name, method)
        broken()

    setattr(kind, name, fail)
    for other in more:
        break_once(*other)


def answer(lib, folder):
    """What a freshly loaded model generates."""
    model = lib.load(folder)
    return lib.generate(lib.context(model), PROMPT, max_tokens=16).text


def main(folder, fault):
    warnings = []
    lib = Library()
    start = {"log": lambda level, text: warnings.append((level, text.decode()))}
    lib.start(**start)
    before = answer(lib, folder)
    model = lib.load(folder)
    contexts = [lib.context(model) for _ in range(WAITING)]
    go_on, ended = threading.Event(), {}
    waiting = threading.Barrier(WAITING + 2)

    def pause():
        if not go_on.is_set():
            waiting.wait()
        go_on.wait()

    def end(name, call):
        try:
            call()
            ended[name] = ["OK", ""]
        except StatusError as error:
            ended[name] = [error.name, error.message]

    def generate(context):
        lib.generate(context, PROMPT, on_text=lambda text: pause(), max_tokens=200)

    calls = {f"generate {n}": (generate, context) for n, context in enumerate(contexts)}
    calls["load"] = (lambda _: lib.load(folder, progress=lambda *told: pause()), None)
    threads = [
        threading.Thread(target=end, args=(name, lambda work=work, of=of: work(of)))
        for name, (work, of) in calls.items()
    ]
    for thread in threads:
        thread.start()
    waiting.wait()
    break_once(*faults()[fault])
    go_on.set()
    for thread in threads:
        thread.join()
    found = {
        "ended": ended,
        "warnings": [text for level, text in warnings if level == LOG_WARNING],
        "handles": lib.info()["handles"],
        "before": before,
        "after": answer(lib, folder),
    }
    try:
        lib.tokens(contexts[0])
        found["context"] = "OK"
    except StatusError as error:
        found["context"] = error.name
    lib.stop()
    lib.start(**start)
    found["started again"] = answer(lib, folder)
    lib.stop()
    print(json.dumps(found))


main(*sys.argv[1:])
