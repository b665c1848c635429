"""A chat template is untrusted: whatever it does, a render ends, and soon."""

from __future__ import annotations

import pytest

from cowmlx.errors import BadFormat, InvalidArgument
from cowmlx.models import template_engine

RECURSION = (
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}"
)
DOUBLING = (
    "{% set ns = namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a = ns.a + ns.a %}"
    "{% endfor %}"
)


@pytest.mark.parametrize(
    "source",
    [
        RECURSION,
        DOUBLING,
        "{{ ('a' * 1000000) | replace('a', 'b' * 10000) }}",
        "{{ range(100000) | join('x' * 100000) }}",
        "{{ [1] | tojson(indent=300000000) }}",
        "{{ [1] | batch(600000000) | list }}",
        "{{ [1] | slice(600000000) | list }}",
        "{{ 'a'.encode() * 6000000000 }}",
        "{{ lipsum(n=3000000) }}",
    ],
)
def test_what_would_not_end_is_refused(source):
    with pytest.raises(InvalidArgument, match="chat template"):
        template_engine.render(template_engine.compile_template(source), {})


def test_a_template_cannot_take_its_bounds_away():
    with pytest.raises(BadFormat, match="reserved name"):
        template_engine.compile_template("{% set _cow_budget = namespace(spend=dict) %}")


def test_the_bounded_filters_do_what_jinja_s_do():
    source = (
        "{{ ['a', 'b'] | join(', ') }} {{ [{'n': 1}, {'n': 2}] | join('-', attribute='n') }} "
        "{{ 'abcb' | replace('b', 'x', 1) }} {{ [1, 2] | tojson(indent=1) }} "
        "{{ [1, 2, 3] | batch(2) | list }} {{ [1, 2, 3] | slice(2) | list }}"
    )
    text = template_engine.render(template_engine.compile_template(source), {})
    assert text == "a, b 1-2 axcb [\n 1,\n 2\n] [[1, 2], [3]] [[1, 2], [3]]"
