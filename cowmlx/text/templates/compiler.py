"""jinja2's compiler, with a call of the environment for whatever is not done at once."""

# ruff: noqa: N802 - jinja2 names its visitors after its nodes.

from __future__ import annotations

from jinja2 import nodes
from jinja2.compiler import CodeGenerator

from cowmlx.text.templates.budget import OverBudget
from cowmlx.text.templates.tokens import MAX_LEVELS, MAX_NODES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from jinja2.compiler import Frame

    from cowmlx.text.templates.budget import Budget

MAX_CODE = 2 << 20
# What the code generator does for a node.
_NODE_STEPS = 32
# A loop pays a step for so many nodes of its body.
_NODES_PER_STEP = 64
_BYTES_PER_NODE = 1024


def check_tree(budget: Budget, tree: nodes.Template) -> None:
    """Make sure that a parsed template is neither too large nor too deep to compile.

    Raises:
        OverBudget: it is.
        ValueError: it switches escaping on by an expression.
    """
    count = 0
    level: list[nodes.Node] = [tree]
    depth = 0
    while level:
        depth += 1
        count += len(level)
        budget.step(len(level))
        if count > MAX_NODES:
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
    budget.make(count * _BYTES_PER_NODE)


class BoundedCodeGenerator(CodeGenerator):
    """Writes the Python code of a template."""

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        """Write the code of a node."""
        environment: Any = self.environment
        environment.budget.step(_NODE_STEPS)
        return super().visit(node, *args, **kwargs)

    def _write_call(self, name: str, frame: Frame, *arguments: nodes.Node | str | None) -> None:
        self.write(f"environment.{name}(")
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
            self._write_call("compare", frame, repr(operand.op), node.expr, operand.expr)
            return
        self.write("environment.compare_chain(")
        self.visit(node.expr, frame)
        for operand in node.ops:
            self.write(f", ({operand.op!r}, lambda: ")
            self.visit(operand.expr, frame)
            self.write(")")
        self.write(")")

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        """Write ``a ~ b``."""
        self._write_call("concatenate", frame, *node.nodes)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        """Write ``a[b]``, where ``b`` may be a slice."""
        if isinstance(node.arg, nodes.Slice):
            bounds = (node.arg.start, node.arg.stop, node.arg.step)
            self._write_call("cut", frame, node.node, *bounds)
        else:
            super().visit_Getitem(node, frame)

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        """Write a list."""
        self.write("environment.new_list(")
        super().visit_List(node, frame)
        self.write(")")

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        """Write a tuple, or the targets of an assignment."""
        if node.ctx != "load":
            super().visit_Tuple(node, frame)
            return
        self.write("environment.new_tuple(")
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
            self._write_call(node.node.name, frame, *node.args)
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
            node.dyn_args = _environment_call("unpacked", node.dyn_args)
        if node.dyn_kwargs is not None:
            node.dyn_kwargs = _environment_call("unpacked_names", node.dyn_kwargs)
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
