"""Children forked while eight contexts generate end with sys.exit() and with C's exit().

Arguments: the model.
"""

import ctypes
import os
import signal
import sys
import threading

from support.library import Library, StatusError
from support.signatures import ADD_SPECIAL, ECANCELED, ESTATE

CONTEXTS, FORKS = 8, 50

lib = Library()
lib.start()
model = lib.load(sys.argv[1])
tokens = lib.tokenize(model, "Once upon a time", ADD_SPECIAL)
started = threading.Barrier(CONTEXTS + 1)


def generate() -> None:
    """Generate until the runtime stops; meet the others once the first text is there."""
    context = lib.context(model)
    waiting = iter([started])
    try:
        while True:
            lib.generate(context, tokens, lambda text: [one.wait() for one in waiting])
            lib.reset(context)
    except StatusError as error:
        # The stop finds a thread in a call, or between two: then the next one is refused.
        assert error.status in (ECANCELED, ESTATE)


def leave(turn: int) -> None:
    """End a child, in turns by Python's exit and by C's alone."""
    signal.alarm(60)  # ends a child that hangs
    print(turn, end=" ")
    if turn % 2:
        sys.exit(turn)
    sys.stdout.flush()
    ctypes.CDLL(None).exit(turn)


threads = [threading.Thread(target=generate) for _ in range(CONTEXTS)]
for thread in threads:
    thread.start()
started.wait()
wrong = ""
for turn in range(FORKS):
    child = os.fork()
    if child == 0:
        leave(turn)
    status = os.waitpid(child, 0)[1]
    if status != turn << 8:
        wrong = f"the child of status {turn} ended with {status:#x}"
        break
lib.stop()  # or the other threads would keep the process
for thread in threads:
    thread.join()
assert not wrong, wrong
