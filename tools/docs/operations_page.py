"""Makes the documentation's page of operations from their table; a hook of MkDocs.

Each row has its formula, inputs, attributes, and an example that is computed for the page.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # MkDocs loads hooks by their path

from cowmlx.programs.operations import FAMILIES  # noqa: E402
from cowmlx.programs.operations.accuracy import float64_error  # noqa: E402
from cowmlx.programs.operations.attributes import attributes_of  # noqa: E402
from cowmlx.programs.operations.examples import arrays_of  # noqa: E402
from cowmlx.programs.operations.promotion import DTYPES, name_of, promoted  # noqa: E402
from cowmlx.programs.operations.row import FLOAT64_ERROR, REQUIRED, Operation, Spec  # noqa: E402

PAGE = "operations.md"


def on_files(files: Any, config: Any) -> Any:
    """Add the page to the site."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, PAGE, content=page()))
    return files


def page() -> str:
    """Return the page as Markdown."""
    parts = ["# Operations", "", promotion(), accuracy()]
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
    for attribute in row.attributes:
        default = "required" if attribute.default is REQUIRED else json.dumps(attribute.default)
        lines.append(
            f"- attribute `{attribute.name}`: {attribute.kind}, {default}. "
            f"{escaped(attribute.about)}"
        )
    error = float64_error(row)
    if error is None:
        lines.append("- no float64")
    elif error != FLOAT64_ERROR:
        lines.append(f"- errors with float64 up to {error:g}")
    if not row.vectorisable:
        lines.append("- not vectorisable")
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
    shown = [spec(each) for each in inputs if each is not None]
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
