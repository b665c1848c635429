"""Programs as text and as graphs in DOT."""

from __future__ import annotations

from typing import Any

from cowmlx.programs.forms.form import Form
from cowmlx.programs.graph import Control, Graph, Node

_MAX_ATTRIBUTE = 40


def draw_text(form: Form) -> str:
    """Return a program line by line: what it declares, and each node with what it gives."""
    library = form.library
    lines = []
    for each in form.inputs:
        init = f" = {each.init[0]}" if each.init else ""
        kind = "parameter" if each.parameter else "input"
        lines.append(f"{kind:9} {each.name}: {each.spec}{init}")
    for graph in (*library.functions.values(), library.main):
        lines += ["", f"function {graph.name}"] if graph.name else [""]
        lines += _graph_lines(graph)
    return "\n".join(lines) + "\n"


def draw_dot(form: Form, title: str = "") -> str:
    """Return a program as a graph in DOT: functions are boxes, control flow has dashed lines.

    Args:
        form: the program.
        title: stands above it.
    """
    library = form.library
    lines = [
        "digraph program {",
        f"  graph [label={_quoted(title)}, labelloc=t, fontname=Helvetica, compound=true]",
        "  node [shape=box, style=filled, fillcolor=white, fontname=Helvetica]",
        "  edge [fontname=Helvetica]",
    ]
    graphs = (library.main, *library.functions.values())
    first = {}
    for number, graph in enumerate(graphs):
        box = [] if not graph.name else [f"  subgraph cluster_{number} {{"]
        box += [f"    label={_quoted('function ' + graph.name)}"] if graph.name else []
        drawn = _graph_in_dot(graph, f"g{number}")
        first[graph.name] = (f"g{number}_results", f"cluster_{number}")
        lines += [*box, *drawn, *(["  }"] if graph.name else [])]
    for number, graph in enumerate(graphs):
        for at, node in enumerate(graph.nodes):
            for used in node.functions:
                target, cluster = first[used]
                lines.append(
                    f"  g{number}_n{at} -> {target} [style=dashed, lhead={cluster}, "
                    "constraint=false]"
                )
    return "\n".join([*lines, "}"]) + "\n"


def _graph_lines(graph: Graph) -> list[str]:
    lines = []
    if graph.name:
        lines += [f"  input {each.name}: {each.spec}" for each in graph.declared]
    lines += [f"  constant {each.name}: {each.spec}" for each in graph.constants.values()]
    for node in graph.nodes:
        given = ", ".join(name or "-" for name in node.inputs)
        results = ", ".join(f"{name}: {graph.specs[name]}" for name in node.outputs)
        lines.append(f"  {results} = {node.op}({given}){_attributes(node, ' ')}")
    return [*lines, f"  -> {', '.join(graph.outputs)}"]


def _graph_in_dot(graph: Graph, prefix: str) -> list[str]:
    places = {}
    lines = []
    for at, (name, fill) in enumerate(
        [
            *((each.name, "lightblue" if each.parameter else "white") for each in graph.declared),
            *((name, "lightgray") for name in graph.constants),
        ]
    ):
        places[name] = f"{prefix}_v{at}"
        label = f"{name}\n{graph.specs[name]}"
        lines.append(f"  {places[name]} [label={_quoted(label)}, shape=oval, fillcolor={fill}]")
    for at, node in enumerate(graph.nodes):
        places |= dict.fromkeys(node.outputs, f"{prefix}_n{at}")
        label = f"{node.name}\n{node.op}{_attributes(node, chr(10))}"
        if node.outputs:
            label += f"\n{graph.specs[node.outputs[0]]}"
        fill = "khaki" if isinstance(node.row, Control) else "white"
        lines.append(f"  {prefix}_n{at} [label={_quoted(label)}, fillcolor={fill}]")
    for at, node in enumerate(graph.nodes):
        lines += [f"  {places[name]} -> {prefix}_n{at}" for name in node.inputs if name]
    lines.append(f"  {prefix}_results [label=results, shape=plaintext, fillcolor=none]")
    lines += [
        f"  {places[name]} -> {prefix}_results [label={_quoted(name)}]" for name in graph.outputs
    ]
    return lines


def _attributes(node: Node, before: str) -> str:
    """Return the attributes that are not their defaults."""
    defaults = {each.name: each.default for each in node.row.attributes}
    said = {name: value for name, value in node.attributes.items() if value != defaults.get(name)}
    return "".join(f"{before}{name}={_shown(value)}" for name, value in said.items())


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= _MAX_ATTRIBUTE else text[: _MAX_ATTRIBUTE - 1] + "…"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
