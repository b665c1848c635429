"""The environment that chat templates run in: what they can reach, and that it is paid for."""

from __future__ import annotations

from jinja2 import ext, nodes
from jinja2.exceptions import SecurityError
from jinja2.filters import _GroupTuple as GroupTuple
from jinja2.runtime import BlockReference, LoopContext, Macro, TemplateReference, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Joiner, Namespace, pass_context

from cowmlx.text.templates import callables, compiler, filters, operators, values
from cowmlx.text.templates.budget import Budget
from cowmlx.text.templates.values import Operation, is_plain_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from jinja2.lexer import Token, TokenStream
    from jinja2.runtime import Context

_MAX_NAME = 100
_CALL_STEPS = 8
_DICT_NAMES = frozenset(dir(dict))


class Generation(ext.Extension):
    """``{% generation %}`` marks what an assistant says; for rendering it only groups."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> Any:
        """Read the block."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class TokenCounter(ext.Extension):
    """Keeps the parser's work, and how deep it recurses, within bounds."""

    def filter_stream(self, stream: TokenStream) -> Iterable[Token]:
        """Hand the tokens on."""
        environment: Any = self.environment
        return compiler.checked(environment.budget, stream)


@pass_context
def _finalize(context: Any, value: Any) -> str:
    """Turn what a template writes into text."""
    budget: Budget = context.environment.budget
    budget.step()
    written = values.text(budget, value)
    budget.make(values.size_of(written) + values.SLOT_BYTES)
    return written


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox of transformers' chat templates, each operation of which is paid for.

    Attributes:
        budget: that of the render, or the compilation, which goes on. One at a time does: a
            template never begins another.
    """

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "**", "%"))
    intercepted_unops = frozenset(("+", "-"))
    operators = operators  # called by the compiled code

    def __init__(self) -> None:
        self.budget = Budget()
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_finalize,
            extensions=[TokenCounter, Generation, ext.loopcontrols],
        )
        self.filters = filters.table()
        self.tests: Any = callables.tests()
        self.globals = dict(callables.FUNCTIONS)

    # What the compiled code calls for each operation.

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Carry out ``left operator right``."""
        return operators.arithmetic(self.budget, operator, left, right)

    def call_unop(self, context: Context, operator: str, arg: Any) -> Any:
        """Carry out a sign."""
        return operators.negative(self.budget, operator, arg)

    def concat(self, parts: Iterable[str]) -> str:
        """Join the pieces of a macro's output."""
        return operators.join(self.budget, "", list(parts))

    def compare(self, sign: str, left: Any, right: Any) -> Any:
        """Carry out ``left sign right``; a method is the fastest way to the budget."""
        return operators.compare(self.budget, sign, left, right)

    def data(self, text: str) -> str:
        """Pay for text of the template's own."""
        self.budget.make(values.size_of(text) + values.SLOT_BYTES)
        self.budget.step()
        return text

    def new_items(self, items: Any) -> Any:
        """Pay for a list or a tuple."""
        self.budget.make(64 + values.ITEM_BYTES * len(items))
        return items

    def new_dict(self, *pairs: tuple[Any, Any]) -> dict[Any, Any]:
        """Make an object."""
        return values.new_dict(self.budget, pairs)

    def loop_items(self, value: Any, weight: int) -> Any:
        """Wrap what a loop goes over, and pay for the loop."""
        self.budget.make(values.OBJECT_BYTES)
        return values.loop_items(self.budget, value, weight)

    def new_macro(self, macro: Macro) -> Macro:
        """Pay for a macro, or for what a call block hands over."""
        self.budget.make(values.LARGE_OBJECT_BYTES)
        return macro

    def positional(self, value: Any) -> Any:
        """Pay for ``*value`` in a call."""
        return values.listed(self.budget, value)

    def keywords(self, value: Any) -> Any:
        """Pay for ``**value`` in a call."""
        if not isinstance(value, dict):
            raise TypeError(f"argument after ** must be a mapping, not {values.type_name(value)}")
        self.budget.make(64 + values.ENTRY_BYTES * len(value))
        return value

    # Attributes, items and calls.

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Carry out ``obj.attribute``."""
        self.budget.step()
        if isinstance(obj, dict) and attribute not in _DICT_NAMES:
            if attribute in obj:
                return obj[attribute]
            return self._missing(obj, attribute)
        value = self.attribute(obj, attribute)
        if not isinstance(value, Undefined) or not isinstance(obj, (dict, TemplateReference)):
            return value
        return value if hasattr(dict, attribute) else self._item(obj, attribute, value)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Carry out ``obj[argument]``."""
        budget = self.budget
        budget.step()
        if isinstance(obj, dict) and isinstance(argument, str):
            values.pay_for_hash(budget, argument)
            if argument in obj:
                return obj[argument]
            return self.attribute(obj, argument)
        if isinstance(obj, (str, list, tuple, range)) and isinstance(argument, int):
            try:
                return obj[argument]
            except IndexError:
                return self._missing(obj, argument)
        values.pay_for_hash(budget, argument)
        missing = self.attribute(obj, argument) if isinstance(argument, str) else None
        if missing is not None and not isinstance(missing, Undefined):
            return missing
        return self._item(obj, argument, missing)

    def _item(self, obj: Any, argument: Any, missing: Any = None) -> Any:
        if isinstance(obj, (dict, TemplateReference, Undefined)):
            self.budget.make(values.OBJECT_BYTES)
            try:
                return obj[argument]
            except (TypeError, LookupError):
                pass
        return self._missing(obj, argument) if missing is None else missing

    def attribute(self, obj: Any, name: str) -> Any:
        """Return an attribute or a method of a value, never an item."""
        budget = self.budget
        kind = type(obj)
        method = callables.bound(budget, obj, name)
        if method is not None:
            return method
        if name in callables.FIELDS.get(kind, ()):
            return getattr(obj, name)
        if isinstance(obj, str) and name in ("format", "format_map"):
            budget.make(values.OBJECT_BYTES)
            return Operation(name, self._format if name == "format" else self._format_map, obj)
        if isinstance(obj, Undefined):
            return obj[name]
        if name.startswith("_"):
            return self._unsafe(obj, name)
        if isinstance(obj, Namespace):
            return getattr(obj, name) if hasattr(obj, name) else self._missing(obj, name)
        if obj is callables.FUNCTIONS["dict"] and name == "fromkeys":
            return callables.FROM_KEYS
        if isinstance(obj, GroupTuple) and name in ("grouper", "list"):
            return getattr(obj, name)
        if kind is BlockReference and name == "super":
            budget.make(values.OBJECT_BYTES)
            return obj.super
        return self._unsafe(obj, name) if hasattr(kind, name) else self._missing(obj, name)

    def _format(self, budget: Budget, pattern: str, *args: Any, **kwargs: Any) -> str:
        return operators.str_format(self, budget, pattern, args, kwargs)

    def _format_map(self, budget: Budget, pattern: str, mapping: Any) -> str:
        return operators.str_format(self, budget, pattern, (), mapping)

    def _missing(self, obj: Any, name: Any) -> Any:
        self.budget.make(values.OBJECT_BYTES)
        if isinstance(name, str):
            name = name[:_MAX_NAME]
        elif not is_plain_key(name) and not isinstance(name, bool):
            # Its text, which a message would give, may be huge.
            name = f"<{values.type_name(name)}>"
        return self.undefined(obj=obj, name=name)

    def _unsafe(self, obj: Any, name: str) -> Any:
        self.budget.make(values.OBJECT_BYTES)
        return self.unsafe_undefined(obj, name[:_MAX_NAME])

    def call(self, context: Context, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Carry out ``function(...)``."""
        budget = self.budget
        budget.step(1 + len(args) + len(kwargs))
        if type(function) is Operation:
            kwargs.pop("_loop_vars", None)
            kwargs.pop("_block_vars", None)
            return function(budget, *args, **kwargs)
        if isinstance(function, Undefined):
            return function()
        if type(function) is LoopContext and args:
            args = (values.loop_items(budget, args[0], _CALL_STEPS), *args[1:])
        elif not isinstance(function, (Macro, BlockReference, Joiner)):
            if callable(function):
                raise SecurityError(f"{values.type_name(function)!r} is not safely callable")
            raise TypeError(f"{values.type_name(function)!r} object is not callable")
        count = len(args) + len(kwargs)
        if type(function) is Macro:
            # Those that are not given are undefined values.
            count += 2 * len(function.arguments)
        budget.step(_CALL_STEPS + count)
        budget.make(values.ITEM_BYTES * (1 + count))
        budget.enter()
        try:
            return context.call(function, *args, **kwargs)
        finally:
            budget.leave()
