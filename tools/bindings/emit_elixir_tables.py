"""Writes what the modules of the Elixir binding are made from: names, options and calls, as data.

bindings/elixir/lib/cow_mlx/methods.ex makes functions of calls, with their documentation;
options.ex reads options. The functions of operations are generated as code.
"""

from __future__ import annotations

import re
import textwrap

from cowmlx.programs.operations.row import Operation
from tools.bindings import emit_elixir, hosts
from tools.bindings import operations as table
from tools.bindings.calls import PREFIX, Call, Role
from tools.bindings.emit_managed_operations import JS_TYPES
from tools.bindings.header import Header

KINDS = {
    "bool": "boolean",
    "float": "number",
    "double": "number",
    "int32_t": "integer",
    "uint32_t": "integer",
    "int64_t": "integer",
    "uint64_t": "integer",
    "size_t": "integer",
}
# Words of the language that are no names of functions.
TAKEN = ("and", "or", "not", "in", "when", "fn", "do", "end", "catch", "rescue", "after", "else")
# Specifications of attributes.
TYPES = {
    "number": "number",
    "boolean": "boolean",
    "string": "String.t() | atom",
    "number[]": "[integer]",
    "number | number[]": "integer | [integer]",
    "(number | string)[]": "[integer | String.t()]",
    "number[][]": "[[integer]]",
}


def declarations(public: Header, generated: str) -> str:
    """Return the text of lib/cow_mlx/tables/declarations.ex."""
    statuses = {value: atom(name.lower()) for name, value in public.statuses.items()}
    functions = [function.name.removeprefix(PREFIX) for function in public.functions]
    reasons = {name: list(keys) for name, keys in public.reasons.items()}
    keys = sorted({key for each in reasons.values() for key in each} | set(COMMON_KEYS))
    dtypes = {name.lower(): pair for name, pair in public.dtypes.items()}
    tables = [
        ("version", "The version of the header.", text(str(public.macros["COW_MLX_VERSION"]))),
        ("statuses", "Statuses by their numbers.", pairs(statuses)),
        ("reasons", "Reasons of failures.", atoms(reasons)),
        ("functions", "The functions of C.", atoms(functions)),
        ("details", "Keys of details.", atoms(keys)),
        (
            "dtypes",
            "Dtypes: the number and the bytes of each.",
            keyword({name: f"{{{value}, {size}}}" for name, (value, size) in dtypes.items()}),
        ),
        ("enumerations", "Constants by their lists.", keyword(enumerations(public))),
        ("options", "Members of params: name, kind, list of constants, text.", options(public)),
        ("calls", "Calls: name, inputs, results, text.", calls(public)),
    ]
    lines = [f"# {generated}", "defmodule CowMLX.Declarations do", "  @moduledoc false"]
    for name, about, value in tables:
        lines += ["", f"  # {about}", f"  def {name} do", textwrap.indent(value, "    "), "  end"]
    return "\n".join([*lines, "end", ""])


# What errors of programs, trainings and operations may have with any reason.
COMMON_KEYS = ("node", "op", "function", "shapes", "dtypes", "position", "steps", "problems")


def atom(name: str) -> str:
    """An atom."""
    return f":{name}" if re.fullmatch(r"[a-z_]\w*", name) else f':"{name}"'


def text(value: str) -> str:
    """A text."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("#{", "\\#{") + '"'


def atoms(names) -> str:
    """A list of atoms, some in a line."""
    listed = textwrap.wrap(", ".join(atom(name) for name in names), 94, break_long_words=False)
    return "\n".join(["[", *(f"  {line}" for line in listed), "]"])


def pairs(entries: dict) -> str:
    """A map, an entry a line."""
    inner = ",\n".join(f"  {key} => {value}" for key, value in entries.items())
    return f"%{{\n{inner}\n}}"


def keyword(entries: dict[str, str]) -> str:
    """A keyword list, an entry a line."""
    inner = ",\n".join(f"  {key}: {value}" for key, value in entries.items())
    return f"[\n{inner}\n]"


def enumerations(public: Header) -> dict[str, str]:
    """The lists of constants, each a keyword list."""
    return {
        group.lower(): "[" + ", ".join(f"{key.lower()}: {n}" for key, n in values.items()) + "]"
        for group, values in hosts.enumerations(public).items()
    }


# ----------------------------------------------------------------------------------- Options


def options(public: Header) -> str:
    """The members of each struct that is a map in Elixir."""
    entries = {}
    for layout in emit_elixir.shown(public):
        members = [f"    {option(each)}" for each in emit_elixir.members(layout)]
        entries[layout.name] = "[\n" + ",\n".join(members) + "\n  ]"
    return keyword(entries)


def option(each: hosts.Member) -> str:
    """One member."""
    kind = KINDS.get(each.type, "integer")
    if each.noun:
        kind = "arrays" if each.kind == "array" else each.noun
    elif each.kind == "array":
        kind = {"int32_t": "int32s", "float": "float32s"}[each.type]
    elif each.kind in ("string", "strings", "callback"):
        kind = each.kind
    listed = atom(each.enumeration.lower()) if each.enumeration else "nil"
    quoted = re.sub(r'"([^"]+)"', r"`\1`", each.about)
    about = re.sub(r"\s+", " ", quoted).strip()
    return f"{{{atom(each.name)}, :{kind}, {listed}, {text(about)}}}"


# ------------------------------------------------------------------------------------- Calls


def calls(public: Header) -> str:
    """The calls that c_src/tables/calls.c has."""
    rows = []
    for call in emit_elixir.made(public):
        inputs = ", ".join(f"{role.name}: {input_kind(role, call)}" for role in call.inputs)
        results = ", ".join(
            f"{name}: {kind}" for role in call.outputs for name, kind in result_kinds(role, call)
        )
        about = text(call.function.summary)
        rows.append(f"  {{{atom(call.name)}, [{inputs}], [{results}],\n   {about}}}")
    return "[\n" + ",\n".join(rows) + "\n]"


def input_kind(role: Role, call: Call) -> str:
    """How Elixir lowers an argument."""
    noun = role.type.name.removeprefix(PREFIX)
    if role.kind == "handle":
        nullable = (call.name, role.name) in emit_elixir.NULLABLE
        return f"{{:optional, :{noun}}}" if nullable else f":{noun}"
    if role.kind == "params":
        return f"{{:params, :{noun}}}"
    if role.kind == "scalar":
        is_flags = role.name == "flags"
        return ":flags" if is_flags else f":{KINDS[noun.replace('_Bool', 'bool')]}"
    if role.name.endswith("_json") or role.name == "json":
        return "{:optional, :json}" if role.nullable else ":json"
    if role.name in ("dimensions", "fixed"):
        return "{:optional, :json}"
    if role.kind == "values_out":
        return ":results"
    kinds = {"string": "string", "strings": "strings", "handles": "arrays"}
    kind = kinds.get(role.kind, role.kind)
    return f"{{:optional, :{kind}}}" if role.nullable and role.kind == "string" else f":{kind}"


def result_kinds(role: Role, call: Call) -> list[tuple[str, str]]:
    """What Elixir makes of a result, for each of its parts."""
    noun = role.type.name.removeprefix(PREFIX)
    if role.kind in ("values_out", "handles_out"):
        return [(role.name, ":arrays")]
    if role.kind == "struct_out":
        return [(role.name, f"{{:struct, :{noun}}}")]
    if role.kind == "buffers_out":
        return buffer_kinds(role, call)
    if role.type.name.startswith(PREFIX):
        return [(role.name, f":{noun}")]
    return [(role.name, ":value")]


def buffer_kinds(role: Role, call: Call) -> list[tuple[str, str]]:
    """The same of buffers; rows are followed by the length of each."""
    if any(each.kind == "texts" for each in call.roles):
        return [(role.name, ":rows"), (role.names[-1], ":value")]
    described = call.name.endswith(("_info", "_inspect"))
    kinds = {"char": "described" if described else "text", "int32_t": "int32s"}
    kinds |= {"float": "float32s", f"{PREFIX}array": "arrays"}
    return [(name, f":{kinds[type_.name]}") for name, type_ in role.buffers]


# -------------------------------------------------------------------------------- Operations


def operations(generated: str) -> str:
    """Return the text of lib/cow_mlx/tables/op.ex, a function for each operation."""
    lines = [f"# {generated}", "defmodule CowMLX.Op do", '  @moduledoc """']
    lines += ["  Operations on values of a program and on arrays."]
    lines += ["", "  With values of a program the result is another one. With arrays, at least one"]
    lines += [
        "  of them, the operation is applied at once, and its result is an array; an error is"
    ]
    lines += ["  raised. A number beside a value or an array takes its dtype. Attributes are"]
    lines += ["  keywords.", '  """', "  import Kernel, only: [def: 2, @: 1, sigil_S: 2]"]
    lines += ["  alias CowMLX.{Array, Operations, Value}", ""]
    lines += ["  @type operand :: Value.t() | Array.t() | number | nil"]
    lines += ["  @type result :: Value.t() | Array.t()"]
    for row in table.ROWS:
        lines += ["", *operation(row)]
    return "\n".join([*lines, "end", ""])


def names(row: Operation) -> list[str]:
    """The names of an operation's inputs as parameters."""
    return [f"{each.name}_" if each.name in TAKEN else each.name for each in row.inputs]


def function_name(row: Operation) -> str:
    """A function's name."""
    return f"{row.name}_" if row.name in TAKEN else row.name


def operation(row: Operation) -> list[str]:
    """The function of one operation."""
    optional = {each.name for each in table.optional_inputs(row)}
    given = [f"{name} \\\\ nil" if name.rstrip("_") in optional else name for name in names(row)]
    kinds = ["[operand]" if row.variadic else "operand" for _ in row.inputs]
    one = len(row.outputs) == 1 and not row.outputs_vary
    if row.outputs_vary:
        given.append("results")
        kinds.append("pos_integer")
    given.append("attributes \\\\ []")
    kinds.append("keyword")
    name = function_name(row)
    operands = names(row)[0] if row.variadic else f"[{', '.join(names(row))}]"
    results = "results" if row.outputs_vary else str(len(row.outputs))
    result = "result" if one else "[result]"
    made = "one" if one else "many"
    arguments = f":{row.name}, {operands}, attributes{'' if one else f', {results}'}"
    return [
        '  @doc ~S"""',
        *(f"  {line}" for line in about(row)),
        '  """',
        f"  @spec {name}({', '.join(kinds)}) :: {result}",
        f"  def {name}({', '.join(given)}) do",
        f"    Operations.{made}({arguments})",
        "  end",
    ]


def about(row: Operation) -> list[str]:
    """The documentation of an operation."""
    lines = [f"{row.summary.rstrip('.')}."]
    formula = re.sub(r"\s+", " ", row.formula).strip()
    if formula:
        lines += ["", f"    {formula}"]
    if len(row.outputs) > 1:
        lines += ["", f"Returns {', '.join(row.outputs)}."]
    if row.attributes:
        lines += ["", "Attributes:", ""]
    for each in row.attributes:
        kind = JS_TYPES.get(each.kind, "string")
        said = f"* `:{each.name}` (`{TYPES.get(kind, 'term')}`): {each.about}"
        wrapped = textwrap.wrap(said, 92, break_long_words=False, break_on_hyphens=False)
        lines += [wrapped[0], *(f"  {line}" for line in wrapped[1:])]
    return lines
