"""Every operation of the table through its method in Rust: its node is that of its example."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import pytest
from support.operation_calls import EXAMPLES, inputs_of, require_node, results_of
from support.paths import LIBRARY, ROOT

from cowmlx.programs.operations.attributes import attributes_of
from cowmlx.programs.operations.row import Attribute, Example, Operation
from tools.bindings import emit_rust as emitted
from tools.bindings import operations as table

pytestmark = pytest.mark.xdist_group("cargo")

MANIFEST = """
[package]
name = "operations"
version = "0.0.0"
edition = "2024"

[dependencies]
cowmlx = {{ path = {path} }}

[profile.dev]
debug = "line-tables-only"

[workspace]
"""


def dtype(name: str) -> str:
    return f"Dtype::{name.capitalize()}"


def literal(attribute: Attribute, value: Any) -> str:
    """A value of an attribute as Rust writes it."""
    if value is None:
        return "None"
    if attribute.kind == "choice":
        return f"{table.choice_of(attribute).name}::{emitted.variant(value)}"
    if attribute.kind == "dtype":
        return dtype(value)
    if isinstance(value, list | tuple):
        if attribute.kind == "pairs":
            return f"[{', '.join(f'({a}, {b})' for a, b in value)}]"
        each = [literal(attribute, each) for each in value]
        if attribute.kind == "shape":
            return f"({''.join(f'{one}, ' for one in each)})"
        return f"[{', '.join(each)}]" if each else "[0i64; 0]"
    if attribute.kind == "float":
        return f"{float(value)!r}_f64"
    if attribute.kind == "int":
        return f"{value}_i64"
    return json.dumps(value)


def call(row: Operation, example: Example) -> str:
    """The call that an example is."""
    values = [None if text is None else f"v[{at}]" for at, text in enumerate(example.inputs)]
    needed = table.needed_inputs(row)
    arguments = [str(each) for each in values[: len(needed)]]
    receiver = "b"
    if row.variadic:
        arguments = [f"[{', '.join(map(str, values))}]"]
    elif row.inputs:
        receiver, *arguments = arguments
    raw = {**attributes_of(row, example.attributes), **example.attributes}
    arguments += [literal(each, raw[each.name]) for each in table.needed_attributes(row)]
    if emitted.COUNTS.get(row.name) == "results":
        arguments.append(f"{results_of(row, example)}_usize")
    options = ""
    for at, place in enumerate(table.optional_inputs(row), len(needed)):
        if at < len(values) and values[at] is not None:
            options += f".{place.name}({values[at]})"
    for each in table.optional_attributes(row):
        if each.name in example.attributes and (
            raw[each.name] is not None or each.default is not None
        ):
            options += f".{emitted.name_of(each)}({literal(each, raw[each.name])})"
    name = f"{row.name}_" if row.name in emitted.KEYWORDS else row.name
    if not options:
        return f"{receiver}.{name}({', '.join(arguments)})"
    kind = "".join(part.capitalize() for part in row.name.split("_"))
    return f"{receiver}.{row.name}_with({', '.join([*arguments, f'{kind}::new(){options}'])})"


def source() -> str:
    """A program that prints each example's program."""
    lines = [
        "use cowmlx::operations::*;",
        "use cowmlx::{Dtype, ProgramBuilder, Runtime, Value};",
        "trait First<'b> { fn first_of(self) -> Value<'b>; }",
        "impl<'b> First<'b> for Value<'b> { fn first_of(self) -> Value<'b> { self } }",
        "impl<'b, const N: usize> First<'b> for [Value<'b>; N]"
        " { fn first_of(self) -> Value<'b> { self[0] } }",
        "impl<'b> First<'b> for Vec<Value<'b>> { fn first_of(self) -> Value<'b> { self[0] } }",
    ]
    for at, (row, example) in enumerate(EXAMPLES):
        inputs = []
        for name, spec in inputs_of(example):
            shape = "".join(f"{side}, " for side in spec.shape)
            inputs.append(f'b.input("{name}", {dtype(spec.dtype)}, ({shape}))')
        lines.append(
            f"fn example_{at}(b: &ProgramBuilder<'_>) {{ "
            f"let v: [Value<'_>; {len(inputs)}] = [{', '.join(inputs)}]; let _ = v;"
            f'b.output("y", {call(row, example)}.first_of()); '
            'println!("{}", b.json().unwrap()); }'
        )
    lines += ["fn main() {", "let runtime = Runtime::start().unwrap();"]
    lines += [f"example_{at}(&ProgramBuilder::new(&runtime));" for at in range(len(EXAMPLES))]
    return "\n".join([*lines, "}"])


def test_each_example_gives_its_node(cargo, tmp_path):
    path = json.dumps(str(ROOT / "bindings/rust/cowmlx"))
    (tmp_path / "Cargo.toml").write_text(MANIFEST.format(path=path))
    lock = (ROOT / "bindings/rust/Cargo.lock").read_text()
    (tmp_path / "Cargo.lock").write_text(lock)
    (tmp_path / "src").mkdir()
    (tmp_path / "src/main.rs").write_text(source())
    loader = "DYLD_LIBRARY_PATH" if sys.platform == "darwin" else "LD_LIBRARY_PATH"
    found = os.pathsep.join(filter(None, [str(LIBRARY.parent), os.environ.get(loader)]))
    arguments = ["--quiet", "--offline", "--manifest-path", tmp_path / "Cargo.toml"]
    done = cargo("run", *arguments, env={loader: found})
    assert (done.returncode, done.stderr) == (0, "")
    printed = done.stdout.splitlines()
    assert len(printed) == len(EXAMPLES)
    for (row, example), line in zip(EXAMPLES, printed, strict=True):
        require_node(row, example, json.loads(line))
