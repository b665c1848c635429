"""Expressions of chat templates, as hypothesis draws them, and what a template is given."""

from __future__ import annotations

from hypothesis import strategies as st

from cowmlx.text.templates import callables, filters

GIVEN = {
    "messages": [{"role": "user", "content": "Hello, größe 🙂"}] * 3,
    "tools": [{"name": "f", "parameters": {"a": [1, 2.5, None, True, "x"]}}],
}

VALUES = [
    *("messages", "tools", "nothing", "none", "true", "'ab'", "'größe 🙂'", "''", "'a,b;c'"),
    *("0", "3", "-7", "2.5", "2 ** 200", "10 ** 9", "[]", "[1, 'a', [2]]", "(1, (2, 3))"),
    *("{}", "{'a': 1, 'b': [2]}", "range(50)", "range(99999)", "'a' * 20000", "[0] * 20000"),
    *("namespace(a=1)", "dict(a=1)", "cycler(1, 2)", "loop", "f", "x", "ns.a", "x", "ns.a"),
]
SIGNS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "<", "in", "and", "or"]
NAMES = sorted({name for table in callables.METHODS.values() for name in table} | {"format"})


def longer(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Expressions made of expressions."""
    arguments = st.lists(inner, max_size=2).map(", ".join)
    return st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(SIGNS), inner),
        st.builds("({}|{})".format, inner, st.sampled_from(sorted(filters.table()))),
        st.builds("({}|{}({}))".format, inner, st.sampled_from(sorted(filters.table())), arguments),
        st.builds("({}|map('{}')|list)".format, inner, st.sampled_from(sorted(filters.table()))),
        st.builds("({}).{}({})".format, inner, st.sampled_from(NAMES), arguments),
        st.builds("({})[{}]".format, inner, inner),
        st.builds("({})[{}:]".format, inner, inner),
        st.builds("({} is {})".format, inner, st.sampled_from(sorted(set(callables.tests())))),
        st.builds("[{}, {}]".format, inner, inner),
        st.builds("({}, {})".format, inner, inner),
        st.builds("{{{}: {}}}".format, inner, inner),
        st.builds("f({})".format, inner),
    )


EXPRESSIONS = st.recursive(st.sampled_from(VALUES), longer, max_leaves=8)
