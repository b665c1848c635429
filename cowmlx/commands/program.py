"""A program's file: checked, shown as text, drawn, converted, or run with arrays of files."""

from __future__ import annotations

import argparse
import json
import os
from typing import TYPE_CHECKING, Any

from cowmlx import json_text
from cowmlx.commands import array_files, origin, terminal
from cowmlx.commands.terminal import CommandError, running, write

if TYPE_CHECKING:
    from cowmlx.programs.program import Program

_MAX_SHOWN = 16


def check(arguments: argparse.Namespace) -> None:
    """Check a program, and print every problem with its node."""
    origin.require_python()
    program = _read(arguments)
    info = program.info()
    functions = len(info["functions"])
    write(
        f"{arguments.file}: {len(info['nodes']):,} nodes and {functions:,} functions, "
        f"{len(program.inputs)} inputs, {len(program.outputs)} results; all shapes and dtypes fit\n"
    )


def show(arguments: argparse.Namespace) -> None:
    """Print a program, with the dtype and shape of every value."""
    origin.require_python()
    from cowmlx.programs.information import draw_text

    write(draw_text(_read(arguments).form))


def draw(arguments: argparse.Namespace) -> None:
    """Draw a program with Graphviz, or print its input."""
    origin.require_python()
    from cowmlx.programs.information import draw_dot

    terminal.require_ending(arguments.output)
    title = os.path.basename(arguments.file)
    terminal.save_drawing(draw_dot(_read(arguments).form, title), arguments.output)


def run(arguments: argparse.Namespace) -> None:
    """Run a program with arrays of files, and write its results or print them."""
    origin.require_python()
    program = _read(arguments)
    given: dict[str, Any] = {}
    known = [input_.name for input_ in program.inputs]
    for entry in arguments.input:
        given |= _arrays(*_named(entry))
    given |= {
        input_.name: input_.value
        for input_ in program.inputs
        if input_.value is not None and input_.name not in given
    }
    missing = [name for name in known if name not in given]
    if missing:
        raise CommandError(f"there is no array for {', '.join(missing[:_MAX_SHOWN])}")
    unknown = [name for name in given if name not in known]
    if unknown:
        raise CommandError(
            f"there is no input {', '.join(unknown[:_MAX_SHOWN])}; inputs are {', '.join(known)}"
        )
    dtypes = {output.name: output.spec.dtype for output in program.outputs}
    for entry in arguments.output:
        _check_output(dtypes, *_named(entry))
    results = program.run(
        [given[name] for name in known], check_finite=arguments.check_finite
    ).finish()
    names = [output.name for output in program.outputs]
    _give(dict(zip(names, results, strict=True)), arguments.output)


def _arrays(name: str | None, path: str) -> dict[str, Any]:
    """Return the arrays of a file by the names of inputs."""
    arrays = array_files.read(path)
    if not isinstance(arrays, dict):
        if name is None:
            raise CommandError(f"{path} holds one array: say which input it is, as NAME={path}")
        return {name: arrays}
    if name is None:
        return arrays
    if name not in arrays:
        raise CommandError(f"{path} has no array {name!r}")
    return {name: arrays[name]}


def _check_output(dtypes: dict[str, str], name: str | None, path: str) -> None:
    """Check what ``--output`` says, before anything is computed."""
    if name is not None and name not in dtypes:
        raise CommandError(f"there is no result {name!r}; results are {', '.join(dtypes)}")
    array_files.check_write(path, dtypes if name is None else {name: dtypes[name]})


def _give(results: dict[str, Any], outputs: list[str]) -> None:
    for entry in outputs:
        name, path = _named(entry)
        array_files.write(path, results if name is None else {name: results[name]})
    if not outputs:
        for name, array in results.items():
            write(f"{name}: {array}\n")


def _read(arguments: argparse.Namespace) -> Program:
    import mlx.core as mx

    from cowmlx.programs.bounds import MAX_BYTES
    from cowmlx.programs.importing import KINDS, load_steps
    from cowmlx.programs.program import Program
    from cowmlx.steps import finished

    gpu = mx.default_device().type == mx.gpu
    path = arguments.file
    if path.lower().endswith(KINDS):
        return finished(load_steps(path, _fixed(arguments), gpu))
    with open(path, "rb") as file:  # JSON under another name
        return Program.parse(file.read(MAX_BYTES + 1), gpu=gpu)


def _fixed(arguments: argparse.Namespace) -> str | None:
    """Return what ``--fix`` gives, as JSON."""
    fixed = {}
    for entry in arguments.fix:
        name, separator, value = entry.partition("=")
        try:
            fixed[name] = json_text.parse(value)
        except json_text.Malformed:
            separator = ""
        if not separator:
            raise CommandError(f"--fix {entry}: must be NAME=VALUE, with a number or JSON list")
    return json.dumps(fixed) if fixed else None


def convert(arguments: argparse.Namespace) -> None:
    """Convert a network to a program as JSON, with its parameters as safetensors beside it."""
    origin.require_python()
    from cowmlx.programs.importing import parts_steps, require_json_ending, save
    from cowmlx.programs.program import Program
    from cowmlx.steps import finished

    require_json_ending(arguments.out)
    entry, values = finished(parts_steps(arguments.file, _fixed(arguments)))
    program = finished(Program.of_entry_steps(entry, values))
    save(entry, values, arguments.out)
    size = sum(array.nbytes for array in values.values())
    write(
        f"{arguments.out}: {len(program.info()['nodes']):,} nodes, {len(values):,} parameters of "
        f"{size:,} bytes\n"
    )


def _named(entry: str) -> tuple[str | None, str]:
    """Split ``NAME=FILE``; a file alone has no name."""
    name, separator, path = entry.partition("=")
    return (name, path) if separator else (None, entry)


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``program`` with its own five."""
    text = "Check, show, draw, run or convert a program of array operations (JSON, ONNX, .mlxfn)."
    parser = commands.add_parser("program", help=text, description=text)
    own = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for command in (check, show, draw, run, convert):
        summary = command.__doc__
        action = own.add_parser(command.__name__, help=summary, description=summary)
        action.add_argument("file", metavar="FILE", help="the program: .json, .onnx or .mlxfn")
        text = "a value of an input, or the size of a dimension, that does not change"
        text += "; may be repeated; not for .json; default: none"
        action.add_argument("--fix", metavar="NAME=VALUE", action="append", default=[], help=text)
        if command is convert:
            action.add_argument("out", metavar="OUT", help="a name that ends with .json")
        action.set_defaults(run=running(command, "program", "file"))
        if command is draw:
            text = f"{terminal.ENDINGS}; default: DOT on the standard output"
            action.add_argument("-o", "--output", metavar="FILE", help=text)
        if command is run:
            files: dict[str, Any] = {"metavar": "[NAME=]FILE", "action": "append", "default": []}
            text = "inputs: NAME=FILE.npy, or FILE.safetensors with several; default: none"
            action.add_argument("-i", "--input", **files, help=text)
            text = "files for results, in the same form; default: the standard output"
            action.add_argument("-o", "--output", **files, help=text)
            text = "fail at the first operation that makes a NaN or infinity; default: continue"
            action.add_argument("--check-finite", action="store_true", help=text)
