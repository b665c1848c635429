"""A host that has made sub-interpreters. Arguments: the model, CDLL or PyDLL, and what it does."""

import ctypes
import sys
import threading

from support.library import Library
from support.signatures import EUNSUPPORTED

try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

model_path, loader, what = sys.argv[1:]
lib = Library(loader=getattr(ctypes, loader))


def run_in_sub(code: str, keep: bool = False) -> None:
    """Run code in a new interpreter, which shares this one's lock where there is a choice."""
    try:
        sub = interpreters.create("legacy")
    except TypeError:
        sub = interpreters.create(isolated=False)
    failed = interpreters.run_string(sub, f"import sys\nsys.path[:] = {sys.path!r}\n{code}")
    assert failed is None, failed
    if not keep:
        interpreters.destroy(sub)


def generate() -> str:
    """The text that every host generates, with callbacks into this interpreter."""
    lib.start()
    model = lib.load(model_path, lambda fraction, stage: None)
    context = lib.context(model)
    tokens = lib.tokenize(model, "Once upon a time", 1)
    text = lib.generate(context, tokens, lambda text: None, max_tokens=16).text
    assert lib.generate(context, tokens, max_tokens=16).text == text
    lib.stop()
    return text


IN_SUB = f"""
import ctypes
from support.library import Library, StatusError
lib = Library(loader=ctypes.{loader})
"""

if what == "before":  # a sub-interpreter, and then the first start
    run_in_sub("pass")
    text = generate()
elif what == "alive":  # one that stays, beside calls of several threads
    run_in_sub("pass", keep=True)
    text = generate()
    lib.start()
    threads = [threading.Thread(target=lib.trim_memory) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lib.stop()
elif what == "between":  # after the start
    lib.start()
    run_in_sub("pass", keep=True)
    text = generate()
    lib.stop()
elif what == "calls":  # calls from a sub-interpreter, once the main one has started
    lib.start()
    run_in_sub(f"{IN_SUB}\nlib.trim_memory()\nassert lib.info()['interpreter'] == 'joined'")
    text = generate()
    lib.stop()
else:  # a start in a sub-interpreter
    code = f"""
{IN_SUB}
import threading
def start():
    try:
        lib.start()
    except StatusError as error:
        assert error.status == {EUNSUPPORTED}, error
        assert "sub-interpreter" in error.message, error
    else:
        assert "{loader}" == "CDLL", "started"  # it joins the main interpreter
        lib.stop()
start()
thread = threading.Thread(target=start)
thread.start()
thread.join()
"""
    run_in_sub(code)
    text = generate()
sys.stdout.write(text)
