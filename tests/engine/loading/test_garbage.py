"""Python looks for garbage again once what made much of it has ended, however it ended."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading

import pytest
from support.paths import CALF, ROOT

from cowmlx import interpreter


@pytest.fixture(params=[True, False], ids=["looking", "not"])
def looking(request):
    """Whether Python looks for garbage when something begins."""
    was = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if was else gc.disable)()


def test_it_is_left_alone_meanwhile(looking):
    with interpreter.uncollected(True):
        assert not gc.isenabled()
    assert gc.isenabled() == looking


def test_an_error_changes_nothing_about_that(looking):
    with pytest.raises(KeyError), interpreter.uncollected(True):
        raise KeyError
    assert gc.isenabled() == looking


FREEZE = """
import gc
from cowmlx import interpreter
gc.disable()
interpreter.collect_from_now()
first = gc.get_freeze_count()
kept = [[] for _ in range(1000)]
interpreter.collect_from_now()
print(gc.isenabled(), first > 0, gc.get_freeze_count() <= first)
"""


def test_what_is_made_later_is_looked_at():
    told = subprocess.run([sys.executable, "-c", FREEZE], capture_output=True, text=True, cwd=ROOT)
    assert told.stdout.split() == ["True"] * 3, told.stderr


def test_a_hosts_python_looks_as_its_host_wants_while_a_model_loads(lib, looking):
    """Any thread of the host may ask for it, or change it, and change it back."""
    seen, loaded = set(), threading.Event()

    def watch() -> None:
        while not loaded.is_set():
            seen.add(gc.isenabled())

    watcher = threading.Thread(target=watch)
    watcher.start()
    model = lib.load(CALF)
    loaded.set()
    watcher.join()
    assert seen == {looking}
    lib.free_model(model)
