"""From a template's source to code: bounds, variables, and jinja2's code generator.

The code calls the environment for every operation that does not take a fixed small time.
"""

# ruff: noqa: N802 - jinja2 names its visitors after its nodes.

from __future__ import annotations

import re
from io import StringIO

from jinja2 import nodes
from jinja2.compiler import CodeGenerator
from jinja2.idtracking import VAR_LOAD_RESOLVE

from cowmlx.text.templates.budget import MAX_DIGITS, OverBudget

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from jinja2.compiler import Frame
    from jinja2.lexer import Token

    from cowmlx.text.templates.budget import Budget
    from cowmlx.text.templates.environment import BoundedEnvironment

MAX_CODE = 2 << 20
# What the code generator does for a node.
_NODE_STEPS = 32
# A loop pays a step for so many nodes of its body.
_NODES_PER_STEP = 64
_BYTES_PER_NODE = 1024
# How the call of an operator begins.
_OPERATOR = "environment.operators.{}(environment.budget, "


def parts_of(budget: Budget, tree: nodes.Template) -> list[nodes.Node]:
    """Return all nodes of a parsed template, if it is neither too large nor too deep to compile.

    Raises:
        OverBudget: it is.
        ValueError: it switches escaping on by an expression.
    """
    parts: list[nodes.Node] = []
    level: list[nodes.Node] = [tree]
    depth = 0
    while level:
        depth += 1
        parts += level
        budget.step(len(level))
        if len(parts) > MAX_NODES:
            raise OverBudget(f"the chat template has more than {MAX_NODES} parts")
        if depth > MAX_LEVELS:
            line = f" (line {level[0].lineno})" if level[0].lineno else ""
            raise OverBudget(
                "the chat template nests expressions or blocks deeper than "
                f"{MAX_LEVELS} levels{line}"
            )
        if any(isinstance(node, nodes.EvalContextModifier) for node in level):
            # Of no use in a chat, and its operand would be evaluated while it is compiled.
            raise ValueError("it uses autoescape")
        level = [child for node in level for child in node.iter_child_nodes()]
    budget.make(len(parts) * _BYTES_PER_NODE)
    return parts


def texts_of(parts: list[nodes.Node]) -> tuple[frozenset[str], str]:
    """Return the names under which a template can find a key, and all text in it.

    These are its attributes and string constants, and its data and string constants: NUL keeps a
    search from matching across two of them.
    """
    constants = (node.value for node in parts if type(node) is nodes.Const)
    texts = {value for value in constants if isinstance(value, str)}
    data = {node.data for node in parts if type(node) is nodes.TemplateData}
    attributes = {node.attr for node in parts if type(node) is nodes.Getattr}
    return frozenset(attributes | texts), "\0".join(sorted(data | texts))


def tests_content(parts: list[nodes.Node]) -> bool:
    """Whether a template tests if something called content is none."""
    return any(
        type(part) is nodes.Test and part.name == "none" and _is_content(part.node)
        for part in parts
    )


def _is_content(node: nodes.Node) -> bool:
    name = node.arg if isinstance(node, nodes.Getitem) else node
    values = (getattr(name, kind, None) for kind in ("name", "attr", "value"))
    return any(isinstance(value, str) and "content" in value for value in values)


class _BoundedCodeGenerator(CodeGenerator):
    """Writes the Python code of a template.

    Attributes:
        lookups: names of variables that the code looks up.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lookups: set[str] = set()

    def enter_frame(self, frame: Frame) -> None:
        """Write the look-ups of a part."""
        super().enter_frame(frame)
        loads = frame.symbols.loads.values()
        self.lookups.update(name for action, name in loads if action == VAR_LOAD_RESOLVE)

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        """Write the code of a node."""
        environment: Any = self.environment
        environment.budget.step(_NODE_STEPS)
        return super().visit(node, *args, **kwargs)

    def _write_call(self, begin: str, frame: Frame, *arguments: nodes.Node | str | None) -> None:
        self.write(begin)
        for argument in arguments:
            if isinstance(argument, nodes.Node):
                self.visit(argument, frame)
            else:
                self.write(str(argument))
            self.write(", ")
        self.write(")")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:
        """Write ``a < b``, or a chain of those."""
        if len(node.ops) == 1:
            [operand] = node.ops
            self._write_call(
                "environment.compare(", frame, repr(operand.op), node.expr, operand.expr
            )
            return
        self.write(_OPERATOR.format("compare_chain"))
        self.visit(node.expr, frame)
        for operand in node.ops:
            self.write(f", ({operand.op!r}, lambda: ")
            self.visit(operand.expr, frame)
            self.write(")")
        self.write(")")

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        """Write ``a ~ b``."""
        self._write_call(_OPERATOR.format("concatenate"), frame, *node.nodes)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        """Write ``a[b]``, where ``b`` may be a slice."""
        if isinstance(node.arg, nodes.Slice):
            bounds = (node.arg.start, node.arg.stop, node.arg.step)
            self._write_call(_OPERATOR.format("cut"), frame, node.node, *bounds)
        else:
            super().visit_Getitem(node, frame)

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        """Write a list."""
        self.write("environment.new_items(")
        super().visit_List(node, frame)
        self.write(")")

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        """Write a tuple, or the targets of an assignment."""
        if node.ctx != "load":
            super().visit_Tuple(node, frame)
            return
        self.write("environment.new_items(")
        super().visit_Tuple(node, frame)
        self.write(")")

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        """Write an object."""
        self.write("environment.new_dict(")
        for pair in node.items:
            self.write("(")
            self.visit(pair.key, frame)
            self.write(", ")
            self.visit(pair.value, frame)
            self.write("), ")
        self.write(")")

    def visit_Call(self, node: nodes.Call, frame: Frame, forward_caller: bool = False) -> None:
        """Write a call, of the template's or of the environment's."""
        if isinstance(node.node, nodes.EnvironmentAttribute):
            self._write_call(f"environment.{node.node.name}(", frame, *node.args)
        else:
            super().visit_Call(node, frame, forward_caller=forward_caller)

    def signature(
        self,
        node: nodes.Call | nodes.Filter | nodes.Test,
        frame: Frame,
        extra_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the arguments of a call."""
        if node.dyn_args is not None:
            node.dyn_args = _environment_call("positional", node.dyn_args)
        if node.dyn_kwargs is not None:
            node.dyn_kwargs = _environment_call("keywords", node.dyn_kwargs)
        super().signature(node, frame, extra_kwargs)

    def macro_def(self, macro_ref: Any, frame: Frame) -> None:
        """Write the making of a macro."""
        self.write("environment.new_macro(")
        super().macro_def(macro_ref, frame)
        self.write(")")

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        """Write a loop."""
        environment: Any = self.environment
        size = sum(1 for _ in node.find_all(nodes.Node))
        environment.budget.step(size)
        weight = 1 + size // _NODES_PER_STEP
        node.iter = _environment_call("loop_items", node.iter, nodes.Const(weight))
        super().visit_For(node, frame)

    def _output_const_repr(self, group: Iterable[Any]) -> str:
        return f"environment.data({''.join(group)!r})"


def _environment_call(name: str, *arguments: Any) -> nodes.Call:
    line = arguments[0].lineno
    return nodes.Call(
        nodes.EnvironmentAttribute(name), list(arguments), [], None, None, lineno=line
    )


MAX_SOURCE = 1 << 20
MAX_NODES = 12_000
MAX_LEVELS = 200
_MAX_BRACKETS = 50
_LONG_NUMBER = re.compile(rf"[0-9_]{{{MAX_DIGITS + 1}}}")
_MAX_BLOCKS = 50
_MAX_PREFIXES = 50
# What the parser does for a token.
_TOKEN_STEPS = 8
_OPENING = frozenset(("lparen", "lbracket", "lbrace"))
_CLOSING = frozenset(("rparen", "rbracket", "rbrace"))
_BLOCKS = frozenset(
    ("autoescape", "block", "call", "filter", "for", "generation", "if", "macro", "with")
)


def check_source(source: str) -> None:
    """Make sure that a template is not too long.

    Raises:
        OverBudget: it is.
    """
    if len(source) > MAX_SOURCE:
        raise OverBudget(f"the chat template is longer than {MAX_SOURCE} characters")
    if _LONG_NUMBER.search(source):  # the lexer would take hundreds of bytes for each digit
        raise OverBudget(f"the chat template spells a number of more than {MAX_DIGITS} digits")


def checked(budget: Budget, stream: Iterable[Token]) -> Iterator[Token]:
    """Hand tokens on; refuse what would make the parser recurse too deeply.

    Raises:
        OverBudget: brackets, blocks, or operators with one operand nest too deeply.
    """
    brackets = blocks = prefixes = elses = 0
    tag = previous = ""
    assigns = False
    for token in stream:
        budget.step(_TOKEN_STEPS)
        budget.make(128 + len(token.value) * 4 if isinstance(token.value, str) else 128)
        kind, word = token.type, token.value
        if kind in _OPENING:
            brackets += 1
        elif kind in _CLOSING:
            brackets -= 1
        elif kind in ("block_begin", "variable_begin"):
            brackets = prefixes = elses = 0
            tag, assigns = "", False
        elif kind == "block_end":
            blocks += tag in _BLOCKS or (tag == "set" and not assigns)
            blocks -= tag.startswith("end")
        elif kind == "assign":
            assigns = True
        elif kind == "name" and previous == "block_begin":
            tag = word
        elif kind == "name" and word == "else":
            elses += 1
        is_prefix = kind in ("sub", "add") or (kind == "name" and word == "not")
        prefixes = prefixes + 1 if is_prefix else 0
        deep = max(brackets - _MAX_BRACKETS, blocks - _MAX_BLOCKS)
        if max(deep, prefixes - _MAX_PREFIXES, elses - _MAX_PREFIXES) > 0:
            raise OverBudget(
                f"the chat template nests expressions or blocks deeper than {_MAX_BRACKETS} levels"
                f" (line {token.lineno})"
            )
        previous = kind
        yield token


def generate(
    environment: BoundedEnvironment, tree: nodes.Template, file: str
) -> tuple[str, frozenset[str]]:
    """Return the code of a template, and its variables.

    These are the names whose value from outside the template can matter, macros included: a
    variable that every path sets before it reads it is the template's own.
    """
    # An optimizer would evaluate constant expressions.
    code = StringIO()
    generator = _BoundedCodeGenerator(environment, None, file, code, optimized=False)
    generator.visit(tree)
    reads = _Reads()
    reads.visit_all(tree.body)
    variables = (generator.lookups & reads.found) - environment.globals.keys()
    return code.getvalue(), frozenset(variables)


class _Reads:
    """Walks a template in the order in which it runs.

    jinja2's own analysis decides what is a variable at all; this one adds the order.

    Attributes:
        found: names that are read on some path on which they are not set yet.
    """

    def __init__(self) -> None:
        self.found: set[str] = set()
        self._set: set[str] = set()  # on every path to here
        self._order: list[str] = []  # the same names, so that a branch can be undone

    def visit_all(self, parts: Iterable[nodes.Node]) -> None:
        for part in parts:
            self._visit(part)

    def _visit(self, node: nodes.Node) -> None:
        if isinstance(node, nodes.Name):
            if node.ctx == "load" and node.name not in self._set:
                self.found.add(node.name)
            elif node.ctx != "load":
                self._store(node.name)
        elif isinstance(node, nodes.Assign):
            self._visit(node.node)
            self._visit(node.target)
        elif isinstance(node, nodes.AssignBlock):
            self._inside(lambda: self.visit_all(node.body))
            if node.filter is not None:
                self._visit(node.filter)
            self._visit(node.target)
        elif isinstance(node, nodes.If):
            self._visit_if(node)
        elif isinstance(node, nodes.For):
            self._visit(node.iter)
            self._inside(lambda: self._visit_loop(node))
            self._inside(lambda: self.visit_all(node.else_))
        elif isinstance(node, nodes.With):
            self.visit_all(node.values)
            self._inside(lambda: self.visit_all([*node.targets, *node.body]))
        elif isinstance(node, nodes.Macro):
            self._store(node.name)
            self._inside(lambda: self.visit_all([*node.defaults, *node.args, *node.body]))
        elif isinstance(node, nodes.CallBlock):
            self._visit(node.call)
            self._inside(lambda: self.visit_all([*node.defaults, *node.args, *node.body]))
        elif isinstance(node, nodes.ScopedEvalContextModifier | nodes.Scope | nodes.FilterBlock):
            self._inside(lambda: self.visit_all(node.iter_child_nodes()))
        else:
            self.visit_all(node.iter_child_nodes())

    def _visit_if(self, node: nodes.If) -> None:
        """Visit the branches; what all of them set is set behind them."""
        self._visit(node.test)
        branches = [node.body]
        for other in node.elif_:
            # The test of a later branch runs where none before it did.
            self._visit(other.test)
            branches.append(other.body)
        branches.append(node.else_)
        common: set[str] | None = None
        for body in branches:
            added = self._inside(lambda body=body: self.visit_all(body))
            common = added if common is None else common & added
        for name in common or ():
            self._store(name)

    def _visit_loop(self, node: nodes.For) -> None:
        self._visit(node.target)
        self._store("loop")
        if node.test is not None:
            self._visit(node.test)
        self.visit_all(node.body)

    def _store(self, name: str) -> None:
        if name not in self._set:
            self._set.add(name)
            self._order.append(name)

    def _inside(self, visit: Any) -> set[str]:
        """Visit a part that may not run, or that has a scope; return the names that it set."""
        before = len(self._order)
        visit()
        added = set(self._order[before:])
        self._set -= added
        del self._order[before:]
        return added
