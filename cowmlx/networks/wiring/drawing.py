"""Drawings of wirings: as text for a terminal, and in DOT, the language of Graphviz.

Names and parameters may come from anywhere: whatever they hold, they stay text of the drawing.
"""

from __future__ import annotations

import json
import textwrap

from cowmlx.networks.wiring.outline import Outline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cowmlx.networks.wiring import Wiring
    from cowmlx.networks.wiring.outline import Inputs, Part, Place

_MAX_VALUE = 60
_SIGNS = {1: "+", -1: "-"}
# The colours of Okabe and Ito, which the colour-blind can distinguish.
_STATE_COLOUR, _NEGATIVE_COLOUR = "#cfe8f6", "#d55e00"


def draw_text(wiring: Wiring, width: int = 80) -> str:
    """Draw a wiring as text, stage by stage; repeated stages are shown once.

    Args:
        wiring: what to draw.
        width: columns that a line may have; at least 40.

    Raises:
        WiringError: there is a cycle, or a block cannot be made.
    """
    outline = Outline(wiring)
    width = max(width, 40)

    def wrapped(text: str, indent: int) -> list[str]:
        margin = " " * indent
        return textwrap.wrap(text, width, initial_indent=margin, subsequent_indent=f"{margin}  ")

    lines = wrapped(_summary(outline), 0)
    for part in outline.parts:
        lines += ["", *wrapped(_heading(part), 0)]
        for place in (place for stage in part.stages for place in stage):
            lines += wrapped(" · ".join([place.label, place.spec.type, *_facts(place)]), 2)
            if place.spec.parameters:
                lines += wrapped(", ".join(_parameters(place)), 6)
            lines += wrapped(_arriving(place, part, wiring), 6)
            if place.borrowed:
                lines += wrapped(f"with the weights of {', '.join(place.borrowed)}", 6)
    lines += ["", *wrapped(f"output: {wiring.output}", 0)]
    return "\n".join(lines) + "\n"


def draw_dot(wiring: Wiring, title: str = "") -> str:
    """Draw a wiring in DOT: stages as ranks, repeated stages once.

    Edges of polarity -1 are dashed and end in a bar, blocks with a state are coloured, what is
    borrowed is dotted.

    Args:
        wiring: what to draw.
        title: stands above the picture.

    Raises:
        WiringError: there is a cycle, or a block cannot be made.
    """
    outline = Outline(wiring)
    caption = "\n".join(filter(None, (title, _summary(outline))))
    lines = [
        "digraph wiring {",
        f"  graph [label={_quoted(caption)}, labelloc=t, fontname=Helvetica, newrank=true]",
        "  node [shape=box, style=filled, fillcolor=white, fontname=Helvetica]",
        "  edge [fontname=Helvetica]",
        "  tokens [shape=plaintext, fillcolor=none]",
        "  output [shape=plaintext, fillcolor=none]",
    ]
    nodes: dict[str, str] = {}
    for index, part in enumerate(outline.parts):
        for place in (place for stage in part.stages for place in stage):
            nodes |= dict.fromkeys(place.names, f"b{len(nodes)}")
        lines += _part_in_dot(part, nodes, index)
    lines.append(f"  tokens -> {nodes[wiring.input]}")
    for part in outline.parts:
        for place in (place for stage in part.stages for place in stage):
            lines += _edges_in_dot(place, part, nodes, outline)
    lines += [f"  {nodes[wiring.output]} -> output", "}"]
    return "\n".join(lines) + "\n"


def _summary(outline: Outline) -> str:
    blocks, stages = _counted(outline.blocks, "block"), _counted(outline.stages, "stage")
    states = f"{outline.stateful:,} with a state"
    return f"{blocks} in {stages}, {states}; {_counted(outline.parameters, 'parameter')}"


def _heading(part: Part) -> str:
    if part.copies == 1:
        return f"stage {part.first}"
    same = "stage" if len(part.stages) == 1 else f"{len(part.stages)} stages"
    return f"stages {part.first} … {part.last}: {part.copies} x the same {same}"


def _facts(place: Place) -> Iterator[str]:
    """Tell the widths, whether there is a state, and how many parameters there are."""
    yield f"{'tokens' if place.takes is None else place.takes} → {place.gives}"
    if place.stateful:
        yield "state"
    if place.parameters:
        copies = f"{len(place.names)} x " if len(place.names) > 1 else ""
        yield copies + _counted(place.parameters, "parameter")


def _parameters(place: Place) -> Iterator[str]:
    for name, value in place.spec.parameters.items():
        text = json.dumps(value, default=repr)
        yield f"{name}={text if len(text) <= _MAX_VALUE else text[:_MAX_VALUE] + '…'}"


def _arriving(place: Place, part: Part, wiring: Wiring) -> str:
    if not place.inputs:
        return "← tokens" if place.names[0] == wiring.input else "← nothing"
    text = f"← {_listed(place.inputs)}"
    # Between the blocks of one copy it is the same again.
    own = {other.names[0] for stage in part.stages for other in stage}
    if not place.later or own.issuperset(source for source, _ in place.inputs):
        return text
    return f"{text}; then {_listed(place.later)} …"


def _listed(inputs: Inputs) -> str:
    return " ".join(f"{_SIGNS[polarity]}{source}" for source, polarity in inputs)


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _part_in_dot(part: Part, nodes: dict[str, str], index: int) -> Iterator[str]:
    """Declare the nodes of a part: a box around them if it is repeated and no single node."""
    boxed = part.copies > 1 and sum(map(len, part.stages)) > 1
    if boxed:
        yield f"  subgraph cluster_{index} {{"
        yield f"  graph [label={_quoted(f'{part.copies} x')}, style=dashed, labeljust=r]"
    for stage in part.stages:
        names = [nodes[place.names[0]] for place in stage]
        for name, place in zip(names, stage, strict=True):
            yield f"  {name} [{_attributes(place)}]"
        if len(names) > 1:
            yield f"  {{ rank=same; {'; '.join(names)} }}"
    if boxed:
        yield "  }"


def _attributes(place: Place) -> str:
    label = [place.label, place.spec.type, *_facts(place)]
    tooltip = _quoted("\n".join(_parameters(place)) or place.spec.type)
    attributes = [f"label={_quoted(chr(10).join(label))}", f"tooltip={tooltip}"]
    if place.stateful:
        attributes.append(f'fillcolor="{_STATE_COLOUR}"')
    if len(place.names) > 1:
        attributes.append("peripheries=2")
    return ", ".join(attributes)


def _edges_in_dot(
    place: Place, part: Part, nodes: dict[str, str], outline: Outline
) -> Iterator[str]:
    target = nodes[place.names[0]]
    ends = {name for other in outline.parts for name in _last_names(other)}
    for source, polarity in place.inputs:
        signs = list(_negative(polarity))
        inside = any(source in other.names[:1] for stage in part.stages for other in stage)
        if source not in ends and not inside:
            signs.append(f"taillabel={_quoted(source)}")
        yield _edge(nodes[source], target, signs)
    # What a repeated part takes from the copy before it, unless that is plain.
    if place.later and sum(map(len, part.stages)) > 1:
        before = {other.names[0] for stage in part.stages for other in stage}
        for source, polarity in place.later:
            if source in before:
                next_copy = ["style=dotted", "constraint=false", *_negative(polarity)[1:]]
                yield _edge(nodes[source], target, next_copy)
    tied = ["style=dotted", "arrowhead=none", "constraint=false", 'label="tied"']
    for source in place.borrowed:
        yield _edge(nodes[source], target, tied)


def _last_names(part: Part) -> Iterator[str]:
    """The names of a part's last copy."""
    return (place.names[-1] for stage in part.stages for place in stage)


def _negative(polarity: int) -> list[str]:
    if polarity > 0:
        return []
    colour = f'color="{_NEGATIVE_COLOUR}", fontcolor="{_NEGATIVE_COLOUR}"'
    return ["style=dashed", colour, "arrowhead=tee", 'label="-1"']


def _edge(source: str, target: str, attributes: Iterable[str]) -> str:
    text = ", ".join(attributes)
    return f"  {source} -> {target}" + (f" [{text}]" if text else "")


def _quoted(text: str) -> str:
    """Return a DOT string that shows this text: no escape, quote or entity in it is one."""
    shown = "".join(char if char.isprintable() or char == "\n" else "�" for char in text)
    shown = shown.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')
    return '"' + shown.replace("\n", "\\n") + '"'
