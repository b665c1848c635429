"""Operations are let go of on the threads of streams, while the dispatch thread waits for these."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.paths import CALF, ROOT

HOST = """
import sys, threading
sys.path.insert(0, "tests")
from support.library import Library

lib = Library()
lib.start()
model = lib.load(sys.argv[1])
given = [0, 0]

def answer(which):
    context = lib.context(model, overflow=1)
    never = {token: float("-inf") for token in ENDS}
    options = dict(max_tokens=3000, temperature=0.8, seed=which, bias=never)
    lib.begin(context, list(range(20, 30 + which)), **options)
    given[which] = len(lib.drain(context))

ENDS = [each["id"] for each in lib.info(model)["end_tokens"]]
threads = [threading.Thread(target=answer, args=(which,)) for which in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(min(given) >= 3000)
"""


@pytest.mark.long
def test_long_answers_come_to_an_end():
    """Unused memory is returned now and then, which waits for all streams with the interpreter."""
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", HOST, str(CALF)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode, done.stdout.split()) == (0, ["True"]), done.stderr
