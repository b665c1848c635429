"""Compiling and rendering chat templates, within bounds."""

from __future__ import annotations

import warnings
from functools import cache
from typing import NamedTuple

from cowmlx.errors import BadFormat, InvalidArgument, OutOfMemory, Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType
    from typing import Any

    from cowmlx.text.templates.budget import Budget
    from cowmlx.text.templates.environment import BoundedEnvironment

_MAX_MESSAGE = 1000
_PUNCTUATION = 8
_FILE = "<template>"


class Program(NamedTuple):
    """A compiled chat template.

    Attributes:
        template: jinja2's.
        variables: those that it reads before it sets them, its macros included.
        names: attributes and strings with which it can look up keys of messages.
        literals: its text and string constants.
        tests_content: whether it tests if a content is none.
    """

    template: Any
    variables: frozenset[str]
    names: frozenset[str]
    literals: str
    tests_content: bool

    def written(self, texts: Iterable[str]) -> set[str]:
        """Return those of some texts that it writes itself, as data or in a string constant.

        Raises:
            BadFormat: looking for them passes a bound.
        """
        from cowmlx.text.templates.budget import Budget

        budget, written = Budget(), set()
        for text in texts:
            budget.step(1 + (len(self.literals) >> 12))
            if text in self.literals:
                written.add(text)
        return written


def compile_template(source: str, budget: Budget | None = None) -> Program:
    """Compile a chat template.

    Raises:
        BadFormat: it is no template, or compiling it passes a bound.
        Unsupported: jinja2 is not there.
    """
    environment = _environment()
    import jinja2

    from cowmlx.text.templates import budget as budgets
    from cowmlx.text.templates import compiler

    environment.budget = budget = budget or budgets.Budget()
    try:
        compiler.check_source(source)
        tree = environment.parse(source)
        parts = compiler.parts_of(budget, tree)
        names, literals = compiler.texts_of(parts)
        tests_content = compiler.tests_content(parts)
        text, variables = compiler.generate(environment, tree, _FILE)
        if len(text) > compiler.MAX_CODE:
            raise budgets.OverBudget(
                f"the chat template makes more than {compiler.MAX_CODE} characters of code"
            )
        with warnings.catch_warnings():  # Python's own of the code would be printed
            warnings.simplefilter("ignore")
            code = compile(text, _FILE, "exec")
    except budgets.OverBudget:
        raise
    except (jinja2.TemplateError, RecursionError, SyntaxError, ValueError) as exc:
        line = getattr(exc, "lineno", None)
        where = f" at line {line}" if line else ""
        raise BadFormat(
            f"the chat template is malformed{where}: {_cut(str(exc))}",
            reason="invalid_template",
            line=line,
        ) from exc
    except MemoryError as exc:
        raise OutOfMemory("the chat template could not be compiled: out of memory") from exc
    template = jinja2.Template.from_code(environment, code, dict(environment.globals))
    return Program(template, variables, names, literals, tests_content)


def render(
    program: Program,
    variables: dict[str, Any],
    budget: Budget | None = None,
    *,
    defaults: dict[str, Any] | None = None,
) -> str:
    """Render a compiled template.

    Args:
        program: the template.
        variables: what the host gave.
        budget: what the render may use.
        defaults: variables of the model's folder, which the host's win over.

    Raises:
        InvalidArgument: the template refused its input, or failed on it.
        BadFormat: it passed a bound.
    """
    import jinja2

    from cowmlx.text.templates import budget as budgets

    template = program.template
    template.environment.budget = budget = budget or budgets.Budget()
    try:
        return _text(template, {**(defaults or {}), **variables}, variables, budget)
    except budgets.OverBudget as exc:
        raise budgets.OverBudget(f"{exc}{_where(template, exc.__traceback__)}") from None
    except jinja2.TemplateError as exc:
        reason = exc.message or type(exc).__name__
        raise InvalidArgument(
            f"the chat template says: {_cut(reason)}", reason="template_refused"
        ) from exc
    except RecursionError as exc:
        raise BadFormat(
            "the chat template recurses deeper than Python can", reason="invalid_template"
        ) from exc
    except MemoryError as exc:
        raise OutOfMemory("the chat template could not be rendered: out of memory") from exc
    except Exception as exc:
        said = _cut(", ".join(map(_brief, exc.args)))
        raise InvalidArgument(
            f"the chat template failed ({type(exc).__name__}: {said})", reason="template_refused"
        ) from exc


def _text(template: Any, variables: dict[str, Any], given: Any, budget: Budget) -> str:
    from cowmlx.text.templates import budget as budgets

    pieces: list[str] = []
    size, most = 0, budgets.MAX_TEXT
    for piece in template.root_render_func(template.new_context(variables)):
        size += len(piece)
        if size > most:
            most = budgets.MAX_TEXT + budgets.MAX_REPEATS * _given(given)
            if size > most:
                raise budgets.OverBudget(f"the chat template writes more than {most} characters")
        pieces.append(piece)
    budget.make(size)
    return "".join(pieces)


def _given(value: Any) -> int:
    """Return the characters in what a template is given, about as JSON has them."""
    if isinstance(value, str):
        return len(value) + _PUNCTUATION
    if isinstance(value, dict):
        return _PUNCTUATION + sum(len(key) + _given(item) for key, item in value.items())
    if isinstance(value, list):
        return _PUNCTUATION + sum(map(_given, value))
    return _PUNCTUATION


def _where(template: Any, trace: TracebackType | None) -> str:
    """Return where in the template an error came up."""
    line = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == _FILE:
            line = template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    return f" (line {line})" if line else ""


def _brief(value: Any) -> str:
    """Return the text of what an exception holds, if that is short for sure."""
    return str(value) if isinstance(value, (str, float)) else f"<{type(value).__name__}>"


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}..."


@cache
def _environment() -> BoundedEnvironment:
    try:
        import jinja2  # noqa: F401
    except ImportError as exc:
        raise Unsupported(
            f"chat templates need the package jinja2, which cannot be imported here ({exc}); "
            "install it, or make the bundle without --without chat",
            reason="package_unusable",
            package="jinja2",
        ) from exc
    from cowmlx.text.templates.environment import BoundedEnvironment

    return BoundedEnvironment()
