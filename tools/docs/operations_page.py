"""Makes the documentation's page of operations from their table; a hook of MkDocs.

Each row has its formula, inputs, attributes, and an example that is computed for the page.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # MkDocs loads hooks by their path

from cowmlx.programs.control import CONTROL  # noqa: E402
from cowmlx.programs.operations import FAMILIES  # noqa: E402
from cowmlx.programs.operations.attributes import attributes_of  # noqa: E402
from cowmlx.programs.operations.examples import arrays_of, float64_error  # noqa: E402
from cowmlx.programs.operations.row import (  # noqa: E402
    FLOAT64_ERROR,
    REQUIRED,
    Attribute,
    Operation,
    Spec,
)
from cowmlx.programs.operations.rules import DTYPES, name_of, promoted  # noqa: E402

PAGE = "operations.md"


def on_files(files: Any, config: Any) -> Any:
    """Add the page to the site."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, PAGE, content=page()))
    return files


def page() -> str:
    """Return the page as Markdown."""
    parts = ["# Operations", "", promotion(), accuracy(), control(), ""]
    for family, rows in FAMILIES.items():
        parts += [f"## {family[0].upper()}{family[1:]}", ""]
        for row in rows:
            parts += [section(row), ""]
    return "\n".join(parts)


def promotion() -> str:
    """Return the table of the dtypes in which two of them meet."""
    lines = ["## Promotion", "", f"| |{'|'.join(DTYPES)}|", "|---" * (len(DTYPES) + 1) + "|"]
    for one in DTYPES:
        cells = (promoted(one, other) or "refused" for other in DTYPES)
        lines.append(f"|**{one}**|{'|'.join(cells)}|")
    return "\n".join([*lines, ""])


def accuracy() -> str:
    """Return how accurate results are."""
    return f"""## Accuracy

Results of float64 inputs, and their gradients, have errors of at most {FLOAT64_ERROR:g}, relative
to the largest absolute value of the result; an operation that differs says so. `operations_info`
has the bound as `float64_error`, null for operations without float64. Tests measure it for each
operation. Other floats have the accuracy of mlx, a few units in the last place.
"""


def control() -> str:
    """Return the section of control flow."""
    parts = [
        """## Control flow

Nodes of `call`, `cond`, `while` and `scan` apply functions of the program, which attributes name. A
node with several results names them all in `"outputs"`, in place of `"name"`. A function sees its
inputs and its own constants, nothing else. Below, each has a whole program.
"""
    ]
    for row in CONTROL.values():
        lines = [f"### {row.name}", "", row.summary, "", "```text", row.formula, "```", ""]
        lines += [f"- inputs `{name}`: {about}" for name, about in row.inputs]
        lines += [f"- outputs `{name}`: {about}" for name, about in row.outputs]
        for attribute in row.attributes:
            kind = "function" if attribute.name in row.functions else attribute.kind
            lines.append(_attribute(attribute, kind))
        parts.append("\n".join([*lines, "", "```json", in_lines(row.example), "```", ""]))
    return "\n".join(parts)


def in_lines(program: Mapping[str, Any]) -> str:
    """Return a program as JSON with a line for each input, node and function's part."""

    def entries(parts: list[Any], depth: int) -> str:
        pad = "  " * depth
        inner = [
            members(part, depth + 1) if "nodes" in part else json.dumps(part) for part in parts
        ]
        return "[\n" + ",\n".join(f"{pad}  {line}" for line in inner) + f"\n{pad}]"

    def members(part: Mapping[str, Any], depth: int) -> str:
        pad = "  " * depth
        lines = [
            f"{pad}  {json.dumps(key)}: "
            + (
                entries(value, depth + 1)
                if isinstance(value, list) and isinstance(value[0], dict)
                else json.dumps(value)
            )
            for key, value in part.items()
        ]
        return "{\n" + ",\n".join(lines) + f"\n{pad}}}"

    return members(program, 0)


def _attribute(attribute: Attribute, kind: str) -> str:
    default = "required" if attribute.default is REQUIRED else json.dumps(attribute.default)
    return f"- attribute `{attribute.name}`: {kind}, {default}. {escaped(attribute.about)}"


def section(row: Operation) -> str:
    """Return what the page says of a row."""
    lines = [f"### {row.name}", "", escaped(row.summary), "", "```text", row.formula, "```", ""]
    if row.aliases:
        lines += [f"Also: {', '.join(f'`{alias}`' for alias in row.aliases)}.", ""]
    if row.source:
        lines += [f"Source: {escaped(row.source)}.", ""]
    for place in row.inputs:
        marks = [
            *(["optional"] if place.optional else []),
            *(["one or more"] if place.variadic else []),
            *(["differentiable"] if place.name in row.differentiable else []),
        ]
        lines.append(f"- `{place.name}`" + (f" ({', '.join(marks)})" if marks else ""))
    lines += [_attribute(attribute, attribute.kind) for attribute in row.attributes]
    error = float64_error(row)
    if error is None:
        lines.append("- no float64")
    elif error != FLOAT64_ERROR:
        lines.append(f"- errors with float64 up to {error:g}")
    return "\n".join([*lines, "", "```text", example(row), "```"])


def example(row: Operation) -> str:
    """Return a node and the specs of its inputs and results, which are computed."""
    first = row.examples[0]
    inputs = row.arranged(arrays_of(first))
    attributes = attributes_of(row, first.attributes)
    node: dict[str, Any] = {"name": "out", "op": row.name}
    node["inputs"] = [text and f"x{at}" for at, text in enumerate(first.inputs)]
    if first.attributes:
        node["attributes"] = first.attributes
    results = row.compute(inputs, attributes)
    shown = [spec(input_) for input_ in inputs if input_ is not None]
    return f"{json.dumps(node)}\n// {', '.join(shown)} → {', '.join(map(spec, results))}".replace(
        "//  →", "// →"
    )


def spec(array: Any) -> str:
    """Return the dtype and shape of an array."""
    return str(Spec(tuple(array.shape), name_of(array.dtype)))


def escaped(text: str) -> str:
    """Return a text that Markdown leaves as it is."""
    for sign in "\\*_[]<>|":
        text = text.replace(sign, f"\\{sign}")
    return text


if __name__ == "__main__":
    print(page())
