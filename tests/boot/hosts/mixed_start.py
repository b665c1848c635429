"""Threads that hold the interpreter and threads that do not race into the first start."""

import ctypes
import threading

from support.library import Library

libraries = [Library(loader=loader) for loader in (ctypes.CDLL, ctypes.PyDLL) * 4]
together = threading.Barrier(len(libraries))


def start(library: Library) -> None:
    """One start and its stop."""
    together.wait()
    library.start()
    library.stop()


threads = [threading.Thread(target=start, args=(library,)) for library in libraries]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
