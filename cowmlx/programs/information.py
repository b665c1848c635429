"""A program as ``program_info`` reports it, as text, and as a graph in DOT."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cowmlx.programs.bounds import Pace, Steps
from cowmlx.programs.dimensions import MAX_DIMENSION, evaluate_shape, names_of
from cowmlx.programs.failure import ProgramError, refused, shown
from cowmlx.programs.forms.form import Form, Output
from cowmlx.programs.graph import Control, Declared, Graph, Library, Node
from cowmlx.programs.operations.row import Spec
from cowmlx.programs.running.concrete import concrete, require_declared
from cowmlx.programs.running.cost import Costs, Needs, bytes_of


def information(form: Form, dimensions: Mapping[str, int] | None) -> Steps[dict[str, Any]]:
    """Return what is known of a form, and for given dimensions what a run of it takes; in steps.

    Shapes are lists of numbers and texts such as "2*batch". Multiplications are those of the
    program as it is written; what is derived of it takes a small multiple.

    Args:
        form: the form.
        dimensions: values of all its dimensions, or None.

    Raises:
        ProgramError: a value that is missing, unknown or out of range, or shapes that cannot meet.
    """
    library = form.library
    described: dict[str, Any] = {
        "inputs": _specs(input_ for input_ in form.inputs if not input_.parameter),
        "parameters": [
            {
                "name": input_.name,
                **_spec(input_.spec),
                "init": None if input_.init is None else {"name": input_.init[0], **input_.init[1]},
                "has_value": input_.value is not None,
            }
            for input_ in form.inputs
            if input_.parameter
        ],
        "outputs": _specs(form.outputs),
        "dimensions": sorted(_names(form) - set(form.fixed)),
        "bound_dimensions": dict(form.fixed),
        "derived": list(form.steps),
        "nodes": (yield from _nodes(library.main)),
        "functions": [],
    }
    for graph in library.functions.values():
        described["functions"].append(
            {
                "name": graph.name,
                "inputs": _specs(graph.declared),
                "outputs": [{"name": name, **_spec(graph.specs[name])} for name in graph.outputs],
                "nodes": (yield from _nodes(graph)),
            }
        )
    if dimensions is not None:
        values = _checked(form, dimensions)
        described["run"] = {
            "dimensions": dict(dimensions),
            **_run((yield from concrete(library, values)), form, values),
        }
    return described


def _names(form: Form) -> set[str]:
    shapes = [input_.spec.shape for input_ in (*form.inputs, *form.library.main.declared)]
    return set().union(*(names_of(shape) for shape in shapes)) if shapes else set()


def _checked(form: Form, given: Mapping[str, int]) -> dict[str, int]:
    known = _names(form) - set(form.fixed)
    accepted = ", ".join(sorted(known)) or "none"
    for name, value in given.items():
        if name not in known:
            raise ProgramError(
                "unknown_option",
                f"there is no dimension {shown(name)}, must be one of {accepted}",
                argument=name,
                accepted=accepted,
            )
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_DIMENSION:
            what, most = f"dimension {shown(name)}", f"0 to {MAX_DIMENSION}"
            raise refused(what, value, most, "out_of_range", argument=name)
    missing = sorted(known - set(given))
    if missing:
        raise ProgramError(
            "missing", f"dimension {shown(missing[0])} has no value", argument=missing[0]
        )
    return {**form.fixed, **given}


def _run(library: Library, form: Form, values: Mapping[str, int]) -> dict[str, Any]:
    results = [
        Spec(evaluate_shape(output.spec.shape, values), output.spec.dtype)
        for output in form.outputs
    ]
    inputs = [
        Spec(evaluate_shape(input_.spec.shape, values), input_.spec.dtype) for input_ in form.inputs
    ]
    main = library.main
    require_declared(form.library.main, main, form.sources(), values)
    return {
        "input_bytes": sum(bytes_of(input_) for input_ in inputs),
        "constant_bytes": sum(
            bytes_of(constant.spec)
            for graph in (main, *library.functions.values())
            for constant in graph.constants.values()
        ),
        "output_bytes": sum(bytes_of(result) for result in results),
        "intermediate_bytes": Needs(library).of_run(form.levels, form.copies(values)),
        "multiplications": Costs(library).multiplications(main),
    }


def _nodes(graph: Graph) -> Steps[list[dict[str, Any]]]:
    rows = []
    pace = Pace()
    for node in graph.nodes:
        yield from pace.rest()
        rows.append(
            {
                "name": node.name,
                "op": node.op,
                "inputs": list(node.inputs),
                "outputs": [{"name": name, **_spec(graph.specs[name])} for name in node.outputs],
            }
        )
    return rows


def _specs(given: Iterable[Declared | Output]) -> list[dict[str, Any]]:
    return [{"name": entry.name, **_spec(entry.spec)} for entry in given]


def _spec(spec: Spec) -> dict[str, Any]:
    shape = [length if isinstance(length, int) else str(length) for length in spec.shape]
    return {"dtype": spec.dtype, "shape": shape}


_MAX_ATTRIBUTE = 40


def draw_text(form: Form) -> str:
    """Return a program line by line: what it declares, and each node with what it gives."""
    library = form.library
    lines = []
    for input_ in form.inputs:
        init = f" = {input_.init[0]}" if input_.init else ""
        kind = "parameter" if input_.parameter else "input"
        lines.append(f"{kind:9} {input_.name}: {input_.spec}{init}")
    for graph in (*library.functions.values(), library.main):
        lines += ["", f"function {graph.name}"] if graph.name else [""]
        lines += _graph_lines(graph)
    return "\n".join(lines) + "\n"


def draw_dot(form: Form, title: str = "") -> str:
    """Return a program as a graph in DOT: functions are boxes, control flow has dashed lines."""
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
        lines += [
            f"  input {declaration.name}: {declaration.spec}" for declaration in graph.declared
        ]
    lines += [
        f"  constant {constant.name}: {constant.spec}" for constant in graph.constants.values()
    ]
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
            *(
                (declaration.name, "lightblue" if declaration.parameter else "white")
                for declaration in graph.declared
            ),
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
    defaults = {attribute.name: attribute.default for attribute in node.row.attributes}
    said = {name: value for name, value in node.attributes.items() if value != defaults.get(name)}
    return "".join(f"{before}{name}={_shown(value)}" for name, value in said.items())


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= _MAX_ATTRIBUTE else text[: _MAX_ATTRIBUTE - 1] + "…"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
