"""The example that does everything in one loop of poll(2)."""

from __future__ import annotations

from subprocess import PIPE, Popen

import pytest
from support.compiler import compile_c, run
from support.hosts import linked
from support.paths import CALF, LIBRARY, ROOT
from support.signatures import ADD_SPECIAL

TEXTS = ["Once upon a time", "The fox", "What is 3 + 4?"]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("event_loop")
    return compile_c([ROOT / "examples/c/event_loop.c"], folder / "program", *linked(LIBRARY))


COUNTING = """
#include <poll.h>
#include <stdio.h>

static int polls;

int count_and_poll(struct pollfd* entries, nfds_t count, int timeout) {
  fprintf(stderr, "%d\\n", ++polls);
  return poll(entries, count, timeout);
}
"""


@pytest.fixture(scope="module")
def stories(lib, calf):
    """What C gives for each text alone."""
    context = lib.context(calf)
    prompts = [lib.tokenize(calf, text, flags=ADD_SPECIAL) for text in TEXTS]
    said = [lib.generate(context, prompt).text for prompt in prompts]
    return [text + more for text, more in zip(TEXTS, said, strict=True)]


def test_each_text_goes_on_as_it_does_alone(program, stories):
    done = run([program, CALF, *TEXTS], input="")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "".join(f"{story}\n" for story in stories)


def test_nothing_that_is_ready_is_left_unread(tmp_path):
    """Standard input has ended before the model is there: a loop that let it be would spin."""
    (tmp_path / "counting.c").write_text(COUNTING)
    counting = compile_c([tmp_path / "counting.c"], tmp_path / "counting.o", "-c")
    source, renamed = ROOT / "examples/c/event_loop.c", "-Dpoll=count_and_poll"
    program = compile_c([source, counting], tmp_path / "program", renamed, *linked(LIBRARY))
    done = run([program, CALF, TEXTS[0]], input="")
    assert done.returncode == 0
    assert len(done.stderr.split()) < 1000, "many more than there are tokens"


def test_a_line_ends_all(program, stories):
    """Whenever it is read: standard input stays open, and is watched."""
    with Popen([program, CALF, *TEXTS], stdin=PIPE, stdout=PIPE, text=True) as host:
        host.stdin.write("\n")
        host.stdin.flush()
        said = host.stdout.read()
        assert host.wait(60) == 0
    for text, story in zip(TEXTS, stories, strict=True):
        parts = [story[:at] + " [ended]" for at in range(len(text), len(story) + 1)]
        shown = next(part for part in [story, *parts] if said.startswith(f"{part}\n"))
        said = said.removeprefix(f"{shown}\n")
    assert said == ""


def test_what_goes_wrong_is_told(program, tmp_path):
    done = run([program, tmp_path / "none", "a text"], input="")
    assert done.returncode == 1
    assert done.stderr.startswith("ENOENT: model_load_async: ")
    assert run([program, CALF], input="").returncode == 2
