"""Generates some text in this interpreter, beside a thread that keeps it busy.

Arguments: the model, CDLL or PyDLL, the main or a second thread, stop or leave.
"""

import atexit
import ctypes
import signal
import sys
import threading

from support.library import Library, StatusError
from support.signatures import ADD_SPECIAL, ECANCELED, ESTATE

model_path, loader, thread, ending = sys.argv[1:]
lib = Library(loader=getattr(ctypes, loader))
ended = threading.Event()


@atexit.register
def look_back() -> None:
    """Registered first, so it runs after the library's own: nothing runs any more."""
    assert lib.c.cow_mlx_memory_trim() == ESTATE


def keep_busy() -> None:
    """Run Python beside the calls."""
    while not ended.is_set():
        pass


def cancel(context: int, started: threading.Event) -> None:
    """End a generation that another thread has begun and would never end by itself."""
    started.wait()
    lib.cancel(context)


def generate() -> None:
    """Load and generate, with callbacks into this interpreter."""
    fractions: list[float] = []
    lib.start()
    assert lib.info()["interpreter"] == "joined"
    model = lib.load(model_path, lambda fraction, _: fractions.append(fraction))
    context = lib.context(model)
    tokens = lib.tokenize(model, "Once upon a time", ADD_SPECIAL)
    lib.generate(context, tokens, sys.stdout.write, max_tokens=16)
    assert fractions
    # A call that kept the interpreter to itself would never be cancelled.
    started = threading.Event()
    threading.Thread(target=cancel, args=(context, started), daemon=True).start()
    try:
        while True:
            lib.generate(context, tokens, lambda text: started.set())
    except StatusError as error:
        assert error.status == ECANCELED
    ended.set()
    if ending == "stop":
        lib.stop()


handler = signal.getsignal(signal.SIGINT)
threading.Thread(target=keep_busy, daemon=True).start()
if thread == "main":
    generate()
else:
    worker = threading.Thread(target=generate)
    worker.start()
    worker.join()
assert ended.is_set()
assert signal.getsignal(signal.SIGINT) is handler
