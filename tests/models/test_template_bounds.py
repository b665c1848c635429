"""Whatever a chat template does, its budget counts it: the counters hold, and what they say."""

from __future__ import annotations

import contextlib
import sys
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.template_expressions import EXPRESSIONS, GIVEN

from cowmlx.errors import BadFormat, CowMlxError
from cowmlx.text import template_engine
from cowmlx.text.templates import budget as budgets
from cowmlx.text.templates.budget import Budget, OverBudget


class Clock:
    """A clock that advances at every look."""

    def __init__(self, step: float) -> None:
        self.now = 0.0
        self.step = step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def run(source: str, budget: Budget | None = None) -> str:
    return template_engine.render(template_engine.compile_template(source), GIVEN, budget)


def test_time_is_looked_at_all_along():
    clock = Clock(0.25)
    budget = Budget(clock)
    with pytest.raises(OverBudget, match=r"longer than 1 s \(line 2\)"):
        run("one\n{% for i in range(99999) %}{% if i %}{% endif %}{% endfor %}", budget)
    assert clock.now == 1.5
    assert budget.steps < 20_000


def test_time_is_looked_at_while_a_template_is_compiled():
    clock = Clock(0.25)
    with pytest.raises(OverBudget, match="longer than 1 s"):
        template_engine.compile_template("{{ a }}" * 3000, Budget(clock))
    assert clock.now == 1.5


def test_a_bound_is_told_with_its_number_and_its_line():
    with pytest.raises(OverBudget) as failure:
        run("one\n\n{{ 'a' * 10 ** 9 }}")
    assert str(failure.value) == "the chat template makes more than 67108864 bytes (line 3)"


def test_a_template_that_cannot_be_compiled_fails_at_once_from_then_on(monkeypatch):
    from cowmlx.text.chat_template import ChatTemplate

    template = ChatTemplate({"default": "{{ a }}" * 30000}, {}, thinking=False)
    messages = [{"role": "user", "content": "x"}]
    with pytest.raises(BadFormat) as first:
        template.render(messages, {})
    monkeypatch.setattr(template_engine, "compile_template", None)
    with pytest.raises(BadFormat) as second:
        template.render(messages, {})
    assert str(first.value) == str(second.value)


def test_an_ordinary_conversation_uses_a_small_part_of_the_budget():
    source = (
        "{% for m in messages %}<|{{ m.role }}|>\n{{ m['content'] | trim }}<|end|>\n{% endfor %}"
    )
    messages = [{"role": "user", "content": "Some words. " * 100}] * 2000
    budget = Budget()
    program = template_engine.compile_template(source)
    text = template_engine.render(program, {"messages": messages}, budget)
    assert text.count("<|end|>") == 2000
    assert budget.steps < budgets.MAX_STEPS / 20
    assert budget.bytes < budgets.MAX_BYTES / 4


@pytest.mark.parametrize(
    "expression",
    [
        "('some words and more ' * 250000).split('</think>')[-1]|length",
        "('größe und mehr\\n' * 350000)|replace('\\n', '\\n  ')|length",
        "('some words and more words\\n' * 200000)|indent(4)|length",
    ],
)
def test_five_megabytes_of_prose_cost_what_is_made_of_them(expression):
    assert int(run(f"{{{{ {expression} }}}}")) >= 5_000_000


SMALL_BYTES, SMALL_STEPS = 1 << 20, 20_000
# What Python itself, and a render of nothing, take.
BESIDES = 1 << 20


# Calls of Python and of C that a step may stand for.
CALLS_PER_STEP, CALLS_BESIDES = 20, 2000


class Calls:
    """Counts the calls that Python's profiler reports."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame, event, argument) -> None:
        self.count += event.endswith("call")


def finishes(program, budget: Budget) -> bool:
    """Render; tell whether that came to an end without an error."""
    with contextlib.suppress(CowMlxError):
        template_engine.render(program, GIVEN, budget)
        return True
    return False


@pytest.fixture
def small(monkeypatch):
    """Small bounds, so that many templates reach them."""
    monkeypatch.setattr(budgets, "MAX_BYTES", SMALL_BYTES)
    monkeypatch.setattr(budgets, "MAX_STEPS", SMALL_STEPS)


@settings(
    max_examples=400,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(EXPRESSIONS, min_size=1, max_size=4))
def test_what_a_template_makes_is_what_its_budget_counts(small, expressions):
    steps = "".join(f"{{% set ns.a = {expression} %}}{{{{ x }}}}" for expression in expressions)
    source = (
        "{% macro f(x) %}{{ x }}{% endmacro %}{% set ns = namespace(a='a') %}"
        f"{{% for i in range(30) %}}{{% set x = ns.a %}}{steps}{{% endfor %}}{{{{ ns.a }}}}"
    )
    try:
        program = template_engine.compile_template(source, Budget(Clock(0)))
    except BadFormat:
        return
    budget = Budget(Clock(0))
    tracemalloc.start()
    try:
        ended = finishes(program, budget)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert budget.bytes <= SMALL_BYTES
    assert peak <= SMALL_BYTES + BESIDES
    assert budget.steps <= SMALL_STEPS or not ended
    before = sys.getprofile()
    calls = Calls()
    sys.setprofile(calls)
    try:
        finishes(program, Budget(Clock(0)))
    finally:
        sys.setprofile(before)
    assert calls.count < CALLS_BESIDES + CALLS_PER_STEP * min(budget.steps, SMALL_STEPS)
