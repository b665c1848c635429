"""The jinja environment of chat templates: sandboxed as transformers does it, and bounded.

A template is untrusted code. The sandbox keeps it from Python's internals; on top of that a
render may iterate :data:`MOST_ITEMS` items, calls included, build strings of
:data:`LONGEST_TEXT` characters and lists of :data:`MOST_ITEMS`, and recurse as deep as Python
does. What is left unbounded: the time of a single filter or
string method on strings within those bounds.
"""

from __future__ import annotations

import re
from functools import cache

from cowmlx.errors import BadFormat, InvalidArgument, Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

MOST_ITEMS = 1_000_000
LONGEST_TEXT = 64 * 1024 * 1024
_WIDE = re.compile(
    r"%[-+ #0]*(?:\d*\.)?(?:\d{6}|\*)|\{[^{}]*:[^{}]*\d{6}|(?<!\{)\{[^{}]*:[^{}]*\{(?!\{)"
)
_PADDING = frozenset(("center", "ljust", "rjust", "zfill", "expandtabs"))


class Budget:
    """Counts the items that one render may still iterate."""

    def __init__(self) -> None:
        self.items = MOST_ITEMS

    def spend(self) -> None:
        """Count one item, or one call.

        Raises:
            InvalidArgument: there were too many.
        """
        self.items -= 1
        if self.items < 0:
            raise InvalidArgument(f"the chat template iterates more than {MOST_ITEMS} items")


class Counted:
    """A sized iterable whose items are counted."""

    def __init__(self, items: Any, budget: Budget) -> None:
        self._items = items
        self._budget = budget

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            self._budget.spend()
            yield item


def compile_template(source: str) -> Any:
    """Compile a chat template.

    Raises:
        BadFormat: it is no template.
        Unsupported: jinja2 is not there.
    """
    try:
        import jinja2
    except ImportError as exc:
        raise Unsupported(
            f"chat templates need the package jinja2, which cannot be imported here ({exc}); "
            "install it, or make the bundle without --without chat"
        ) from exc

    environment = _environment()
    try:
        tree = environment.parse(source)
        _keep_budget(tree)
        _count_loops(tree)
        code = environment.compile(tree)
    except (jinja2.TemplateError, RecursionError, SyntaxError, ValueError) as exc:
        line = getattr(exc, "lineno", None)
        where = f" at line {line}" if line else ""
        raise BadFormat(f"the chat template is malformed{where}: {exc}") from exc
    return jinja2.Template.from_code(environment, code, dict(environment.globals))


def render(template: Any, variables: dict[str, Any]) -> str:
    """Render a compiled template.

    Raises:
        InvalidArgument: the template refused its input, failed on it, or ran out of bounds.
    """
    import jinja2

    pieces: list[str] = []
    size = 0
    try:
        for piece in template.generate(**variables, **{_BUDGET: Budget()}):
            size += len(piece)
            _check_length(size)
            pieces.append(piece)
    except InvalidArgument:
        raise
    except jinja2.TemplateError as exc:
        reason = exc.message or type(exc).__name__
        raise InvalidArgument(f"the chat template says: {reason}") from exc
    except RecursionError as exc:
        raise InvalidArgument("the chat template recurses too deeply") from exc
    except Exception as exc:
        raise InvalidArgument(f"the chat template failed ({type(exc).__name__}: {exc})") from exc
    return "".join(pieces)


def literal_text(source: str) -> str:
    """Return the text that a template writes itself: its data and its string constants."""
    from jinja2 import nodes

    tree = _environment().parse(source)
    found = {node.data for node in tree.find_all(nodes.TemplateData)}
    found |= {node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)}
    # NUL keeps a search from matching across two of them.
    return "\0".join(sorted(found))


def read_variables(source: str) -> frozenset[str]:
    """Return the variables that a template looks up, its macros included.

    Raises:
        BadFormat, Unsupported: as :func:`compile_template`.
    """
    compile_template(source)
    from jinja2 import meta

    return frozenset(meta.find_undeclared_variables(_environment().parse(source)))


_BUDGET = "_cow_budget"
_COUNT = "_cow_counted"
_JOIN = "_cow_joined"


def _keep_budget(tree: Any) -> None:
    """Refuse a template that spells the name of its own budget."""
    from jinja2 import nodes

    if any(node.name == _BUDGET for node in tree.find_all(nodes.Name)):
        raise ValueError(f"it uses the reserved name {_BUDGET}")


def _count_loops(tree: Any) -> None:
    """Make every loop count its items and every ``~`` check the length of its result."""
    from jinja2 import nodes

    for loop in list(tree.find_all(nodes.For)):
        arguments = [nodes.Name(_BUDGET, "load")]
        loop.iter = nodes.Filter(loop.iter, _COUNT, arguments, [], None, None)
        loop.iter.set_lineno(loop.lineno)
        loop.iter.set_environment(tree.environment)
    for join in list(tree.find_all(nodes.Concat)):
        parts = nodes.List(join.nodes).set_lineno(join.lineno)
        call = nodes.Filter(parts, _JOIN, [], [], None, None).set_lineno(join.lineno)
        call.set_environment(tree.environment)
        join.nodes = [call]


def _check_length(length: int) -> None:
    if length > LONGEST_TEXT:
        raise InvalidArgument(
            f"the chat template builds a text of more than {LONGEST_TEXT} characters"
        )


def _check_sum(*parts: Any) -> None:
    """Keep what an operator puts together within bounds."""
    size = sum(len(part) for part in parts if hasattr(part, "__len__"))
    _check_length(size)
    if isinstance(parts[0], (list, tuple)):
        _check_count(size)


def _check_count(count: object) -> None:
    if isinstance(count, int) and count > MOST_ITEMS:
        raise InvalidArgument(f"the chat template builds a list of more than {MOST_ITEMS} items")


def _check_format(pattern: str) -> None:
    """Refuse widths that are huge, or that the template computes."""
    if _WIDE.search(pattern):
        raise InvalidArgument(f"the chat template pads without bound: {pattern[:80]!r}")


@cache
def _environment() -> Any:
    import json
    from datetime import datetime

    import jinja2
    from jinja2 import ext, filters, nodes
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.utils import Namespace

    class Generation(ext.Extension):
        """``{% generation %}`` marks what an assistant says; for rendering it only groups."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body).set_lineno(line)

    class Environment(ImmutableSandboxedEnvironment):
        """The sandbox, with string operators and padding kept within bounds."""

        intercepted_binops = frozenset(("*", "**", "+", "%"))

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            if operator == "*":
                for part, times in ((left, right), (right, left)):
                    if isinstance(part, (str, bytes, list, tuple)) and isinstance(times, int):
                        size = len(part) * max(times, 0)
                        _check_length(size)
                        if not isinstance(part, (str, bytes)):
                            _check_count(size)
            elif operator == "**" and isinstance(right, int):
                _check_length(abs(right) * (left.bit_length() if isinstance(left, int) else 1))
            elif operator == "+":
                _check_sum(left, right)
            elif operator == "%" and isinstance(left, str):
                _check_format(left)
            return super().call_binop(context, operator, left, right)

        def call(self, context: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
            budget = context.get(_BUDGET)
            if budget is not None:
                budget.spend()
            owner = getattr(function, "__self__", None)
            if isinstance(owner, str):
                name = getattr(function, "__name__", "")
                if name in _PADDING:
                    sizes = [value for value in args if isinstance(value, int)]
                    _check_length(max([*sizes, 0]) * (max(len(owner), 1) if "tabs" in name else 1))
                elif name == "join" and args:
                    parts = list(args[0])
                    lengths = sum(len(part) for part in parts if isinstance(part, str))
                    _check_length(len(owner) * len(parts) + lengths)
                    args = (parts, *args[1:])
                elif name == "replace" and len(args) >= 2:
                    _check_length(len(owner) + owner.count(args[0]) * len(args[1]))
            return super().call(context, function, *args, **kwargs)

        def wrap_str_format(self, value: Any) -> Any:
            owner = getattr(value, "__self__", None)
            wrapped = super().wrap_str_format(value)
            if wrapped is not None and isinstance(owner, str):
                _check_format(owner)
            return wrapped

    class PlainNamespace(Namespace):
        """A namespace without names that begin with an underscore."""

        def __init__(*args: Any, **kwargs: Any) -> None:
            self, values = args[0], dict(*args[1:], **kwargs)
            for name in values:
                _check_name(name)
            Namespace.__init__(self, values)

        def __setitem__(self, name: str, value: Any) -> None:
            _check_name(name)
            super().__setitem__(name, value)

    class MakeDict:
        """``dict`` without the type's attributes."""

        def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
            return dict(*args, **kwargs)

        def fromkeys(self, keys: Any, value: Any = None) -> dict[Any, Any]:
            return dict.fromkeys(keys, value)

    def _check_name(name: object) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"namespaces take no name like {name!r}")

    def raise_exception(message: str) -> None:
        raise jinja2.exceptions.TemplateError(message)

    def to_json(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: Any = None,
        sort_keys: bool = False,
    ) -> str:
        _check_count((indent or 0) * 10_000)  # a hundred columns are plenty
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    def joined(parts: list[Any]) -> str:
        texts = [str(part) for part in parts]
        _check_length(sum(map(len, texts)))
        return "".join(texts)

    def center(value: Any, width: int = 80) -> str:
        _check_length(width)
        return str(value).center(width)

    def formatted(value: Any, *args: Any, **kwargs: Any) -> str:
        _check_format(str(value))
        return filters.do_format(value, *args, **kwargs)

    def indent(value: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
        added = len(width) if isinstance(width, str) else width
        _check_length(len(value) + added * (value.count("\n") + 1))
        return filters.do_indent(value, width, first, blank)

    def replaced(value: Any, old: Any, new: Any, count: int | None = None) -> str:
        text, old, new = str(value), str(old), str(new)
        _check_length(len(text) + text.count(old) * len(new))
        return text.replace(old, new, -1 if count is None else count)

    @jinja2.pass_eval_context
    def joined_items(evaluation: Any, value: Any, d: str = "", attribute: Any = None) -> str:
        parts = list(value)
        _check_length(len(str(d)) * len(parts) + sum(len(p) for p in parts if isinstance(p, str)))
        return filters.sync_do_join(evaluation, parts, d, attribute)

    def batched(value: Any, linecount: int, fill_with: Any = None) -> Any:
        _check_count(linecount)
        return filters.do_batch(value, linecount, fill_with)

    def sliced(value: Any, slices: int, fill_with: Any = None) -> Any:
        _check_count(slices)
        return filters.sync_do_slice(value, slices, fill_with)

    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.filters.update(center=center, format=formatted, indent=indent)
    environment.filters.update(replace=replaced, join=joined_items, batch=batched, slice=sliced)
    del environment.globals["lipsum"]
    environment.filters[_COUNT] = _counted
    environment.filters[_JOIN] = joined
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)
    environment.globals["dict"] = MakeDict()
    environment.globals["namespace"] = PlainNamespace
    return environment


def _counted(items: Any, budget: Budget) -> Any:
    """Wrap what a loop iterates; what has no length stays an iterator, as jinja treats it."""
    counted = Counted(items, budget)
    return counted if hasattr(items, "__len__") else iter(counted)
