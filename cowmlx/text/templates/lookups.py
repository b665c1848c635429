"""The variables that a template reads from outside, and the names it mentions."""

from __future__ import annotations

from jinja2 import nodes
from jinja2.meta import TrackingCodeGenerator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


def variables_of(tree: nodes.Template) -> frozenset[str]:
    """Return the variables whose value from outside the template can matter, macros included.

    A variable that every path sets before it reads it is the template's own.
    """
    found = _Lookups(tree.environment)
    found.visit(tree)
    reads = _Reads()
    reads.visit_all(tree.body)
    return frozenset(found.undeclared_identifiers) & reads.found


def names_of(tree: nodes.Template) -> frozenset[str]:
    """Return the attributes and texts in a template: all names under which it can find a key."""
    attributes = {node.attr for node in tree.find_all(nodes.Getattr)}
    texts = {node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)}
    return frozenset(attributes | texts)


class _Lookups(TrackingCodeGenerator):
    """jinja2's own, which would evaluate constants."""

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        self.optimizer = None


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
        """Visit what may not run, or has a scope of its own; the names that it set."""
        before = len(self._order)
        visit()
        added = set(self._order[before:])
        self._set -= added
        del self._order[before:]
        return added
