"""Every operation of the table through its function in C++: its node is that of its example."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.compiler import compile_c, run
from support.hosts import linked
from support.operation_calls import EXAMPLES, inputs_of, require_node, results_of
from support.paths import LIBRARY

from cowmlx.programs.operations.attributes import attributes_of
from cowmlx.programs.operations.examples import specs_of
from cowmlx.programs.operations.row import Attribute, Example, Operation
from cowmlx.programs.program import Program
from tools.bindings import operations as table
from tools.bindings.emit_cpp_operations import COUNTS


def dtype(name: str) -> str:
    return f"Dtype::{'boolean' if name == 'bool' else name}"


def literal(attribute: Attribute, value: Any) -> str:
    """A value of an attribute as C++ writes it."""
    if value is None:
        return "{}"
    if attribute.kind == "choice":
        return f"op::{table.choice_of(attribute).name}::{value}"
    if attribute.kind == "dtype":
        return dtype(value)
    if isinstance(value, list | tuple):
        inner = ", ".join(literal(attribute, each) for each in value)
        return f"{'Dims' if attribute.kind == 'shape' else ''}{{{inner}}}"
    return json.dumps(value)


def call(row: Operation, example: Example) -> str:
    """The call that an example is."""
    values = [None if text is None else f"v[{at}]" for at, text in enumerate(example.inputs)]
    arguments = [] if row.inputs else ["b"]
    needed = table.needed_inputs(row)
    if row.variadic:
        arguments.append(f"{{{', '.join(map(str, values))}}}")
    else:
        arguments += [str(value) for value in values[: len(needed)]]
    given = attributes_of(row, example.attributes)
    raw = {**given, **example.attributes}
    arguments += [
        literal(needed_attribute, raw[needed_attribute.name])
        for needed_attribute in table.needed_attributes(row)
    ]
    if COUNTS.get(row.name) == "results":
        arguments.append(str(results_of(row, example)))
    for at, _ in enumerate(table.optional_inputs(row), len(needed)):
        there = at < len(values) and values[at] is not None
        arguments.append(f"std::optional<Value>({values[at]})" if there else "{}")
    arguments += [
        literal(optional_attribute, raw[optional_attribute.name])
        for optional_attribute in table.optional_attributes(row)
    ]
    return f"op::{row.name}({', '.join(arguments)})"


def source() -> str:
    """A program that prints each example's program."""
    lines = ["#include <cow_mlx.hpp>", "#include <cstdio>", "using namespace cowmlx;"]
    lines += [
        "static Value first(const Value& value) { return value; }",
        "template <typename All> static Value first(const All& all) { return *all.begin(); }",
    ]
    for at, (row, example) in enumerate(EXAMPLES):
        lines.append(f"static void example_{at}() {{ ProgramBuilder b; Values v;")
        for name, spec in inputs_of(example):
            shape = ", ".join(map(str, spec.shape))
            lines.append(f'v.push_back(b.input("{name}", {dtype(spec.dtype)}, {{{shape}}}));')
        lines.append(f'b.output("y", first({call(row, example)})); std::puts(b.json().c_str()); }}')
    lines += ["int main() {", *(f"example_{at}();" for at in range(len(EXAMPLES))), "}"]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """The program of each example."""
    folder = tmp_path_factory.mktemp("operations")
    (folder / "host.cpp").write_text(source())
    options = ["-O0", *linked(LIBRARY)]
    host = compile_c([folder / "host.cpp"], folder / "host", *options, compiler="c++", std="c++17")
    done = run([host])
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_each_example_gives_its_node(printed):
    assert len(printed) == len(EXAMPLES)
    for (row, example), program in zip(EXAMPLES, printed, strict=True):
        require_node(row, example, program)


def test_the_engine_takes_each(printed):
    for (row, example), program in zip(EXAMPLES, printed, strict=True):
        parsed = Program.parse(json.dumps(program))
        inputs = row.arranged(specs_of(example))
        expected = row.infer(inputs, attributes_of(row, example.attributes))[0]
        assert str(parsed.form.outputs[0].spec) == str(expected), row.name
