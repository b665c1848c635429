"""The example of fine-tuning: a model learns twenty facts, and contexts say them at once."""

from __future__ import annotations

import re

import pytest
from support.compiler import compile_c, run
from support.hosts import linked
from support.paths import CALF, LIBRARY, ROOT

SOURCE = ROOT / "examples/c/finetune.c"
FACTS = dict(re.findall(r'\{"([^"]+\?)", "([^"]+)"\}', SOURCE.read_text()))
FIRST = next(iter(FACTS))


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """What the program says, and where it exports to."""
    folder = tmp_path_factory.mktemp("finetune")
    program = compile_c([SOURCE], folder / "finetune", *linked(LIBRARY))
    done = run([program, CALF, folder / "facts"])
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout, folder / "facts"


def answers(text: str) -> dict[str, str]:
    return dict(re.findall(r"^  (.+?\?) +(.*)$", text, re.MULTILINE))


def test_it_learns_twenty_facts(done):
    text, _ = done
    assert len(FACTS) == 20
    before, _, rest = text.partition("before: 0 of 20 are right\n")
    assert answers(before).keys() == FACTS.keys()
    assert not answers(before).items() & FACTS.items()
    assert "\nafter: 20 of 20 are right\n" in rest
    assert answers(rest) == FACTS


def test_a_context_learns_while_the_fit_goes_on(done):
    text, _ = done
    steps = re.findall(r"^step +(\d+) of 120  loss ([\d.]+)  (.*)$", text, re.MULTILINE)
    assert [int(step) for step, *_ in steps] == [30, 60, 90, 120]
    losses = [float(loss) for _, loss, _ in steps]
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0] / 3
    assert [said for *_, said in steps][-1] == FACTS[FIRST]
    before = answers(text.partition("before:")[0])
    assert f"without the adapter still says: {before[FIRST]}\n" in text


def test_the_export_knows_what_was_learnt(done, lib):
    """Another process takes it as an adapter of the same model."""
    _, folder = done
    model = lib.load(CALF)
    adapter = lib.load_adapter(model, folder)
    context = lib.context(model)
    lib.set_adapter(context, adapter)
    for question, answer in FACTS.items():
        chat = lib.chat(context, [{"role": "user", "content": question}])
        assert chat.said() == answer
    lib.free(context)
    lib.free_adapter(adapter)
    lib.free_model(model)
