"""Writes the Cython side: declarations of the headers, readers of arguments, writers of results."""

from __future__ import annotations

from tools.bindings.call_table import Is
from tools.bindings.calls import Call, Field, Role
from tools.bindings.header import Alias, Enum, Header, Signature, Struct, Type

NAMES = {"bool": "cbool", "_Bool": "cbool"}

# The dispatch thread holds the interpreter when it calls these.
HELD = {"cow_bridge"}

OPENING = '''\
"""{generated}"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t


cdef extern from "<stdbool.h>" nogil:
    ctypedef bint cbool "bool"


cdef extern from "bridge.h" nogil:
'''


def pxd(headers: list[Header], generated: str) -> str:
    """Return the text of cowmlx/generated/cow_mlx.pxd."""
    blocks = []
    for header in headers:
        blocks += [macro(name, value) for name, value in header.macros.items()]
        if header.statuses:
            blocks.append("const size_t COW_MLX_NUL")
        blocks += [declaration(item) for item in header.declarations]
    body = "\n\n".join(blocks)
    indented = "\n".join(f"    {line}" if line else "" for line in body.splitlines())
    return OPENING.format(generated=generated) + indented + "\n"


def macro(name: str, value: int | str) -> str:
    """A macro, as the constant that it is in C."""
    return f"const char* {name}" if isinstance(value, str) else f"enum: {name}"


def declaration(item: Enum | Struct | Alias) -> str:
    """One enum, struct or typedef."""
    if isinstance(item, Alias):
        return f"ctypedef {variable(item.name, item.type, ' noexcept nogil')}"
    if isinstance(item, Enum):
        head = f"ctypedef enum {item.name}:" if item.name else "enum:"
        return "\n    ".join([head, *item.values])
    keyword = "ctypedef struct" if item.is_typedef and item.members else "struct"
    if item.members is None:
        return f"{keyword} {item.name}"
    suffix = " noexcept" if item.name in HELD else " noexcept nogil"
    members = [variable(name, type_, suffix) for name, type_ in item.members]
    return "\n    ".join([f"{keyword} {item.name}:", *members])


def variable(name: str, type_: Type, suffix: str) -> str:
    """A member, parameter or typedef; ``suffix`` ends function pointers."""
    if type_.function:
        return pointer(name, type_.function, suffix)
    return f"{spell(type_)} {name}".strip()


def pointer(name: str, signature: Signature, suffix: str) -> str:
    """A function pointer."""
    params = ", ".join(variable(name, type_, suffix) for name, type_ in signature.params)
    line = f"{spell(signature.result)} (*{name})({params}){suffix}"
    return line if len(line) < 85 else line.replace(")(", ")(\n        ")


def spell(type_: Type) -> str:
    """A type that is no function pointer."""
    const = "const " if type_.const else ""
    return const + NAMES.get(type_.name, type_.name) + "".join(type_.pointers)


WIDTH = 100
PUTS = {"char": "put_text", "int32_t": "put_tokens", "float": "put_floats"}
PUTS |= {"cow_mlx_array": "put_arrays"}


def call_arguments(
    calls: list[Call], params: dict[str, list[Field]], structs: list[Struct], generated: str
) -> str:
    """Return the text of cowmlx/generated/call_arguments.pxi."""
    written = {
        role.type.name for call in calls for role in call.outputs if role.kind == "struct_out"
    }
    lines = [f'"""{generated}"""', ""]
    for noun, fields in params.items():
        lines += read_params(noun, fields)
    for struct in structs:
        if struct.name in written:
            lines += write_struct(struct)
    for call in calls:
        lines += reader(call) + writer(call)
    lines += [
        "ctypedef tuple (*reader)(cow_request*)",
        "ctypedef int (*writer)(cow_request*, object) except -1",
        "cdef reader READERS[<int> COW_OP_COUNT]",
        "cdef writer WRITERS[<int> COW_OP_COUNT]",
        "# The engine's methods.",
        "cdef dict METHODS = {}",
    ]
    for call in calls:
        lines.append(f"READERS[<int> {call.op}] = read_{call.name}")
        lines.append(f"WRITERS[<int> {call.op}] = write_{call.name}")
        lines.append(f'METHODS[<int> {call.op}] = "{call.name}"')
    for table in (Is.ALLOCATES, Is.READ_ONLY):
        lines.append(f"cdef cbool[<int> COW_OP_COUNT] {table.name}")
        lines += [f"{table.name}[<int> {c.op}] = True" for c in calls if table in c.properties]
    return "\n".join(lines) + "\n"


def read_params(noun: str, fields: list[Field]) -> list[str]:
    """The reader of one params struct."""
    lines = [
        f"cdef dict to_{noun}_params(const cow_mlx_{noun}_params* p):",
        "    return {",
    ]
    for field in fields:
        name = field.name
        match field.kind:
            case "string":
                value = f'to_string(p.{name}, "{name}")'
            case "strings":
                reader = "to_given_strings" if field.missing else "to_strings"
                value = f'{reader}(p.{name}, p.{field.count}, "{name}", "{field.count}")'
            case "values":
                kind = {"float": "floats", "cow_mlx_array": "longs"}.get(field.type.name, "ints")
                value = f'to_{kind}(p.{name}, p.{field.count}, "{name}", "{field.count}")'
            case _:
                value = f"p.{name}"
        line = f'        "{name}": {value},'
        if len(line) > WIDTH:
            call, _, rest = value.partition("(")
            if len(rest) > WIDTH - 12:
                rest = rest.replace(', "', ',\n            "', 1)
            line = f'        "{name}": {call}(\n            {rest.removesuffix(")")}\n        ),'
        lines.append(line)
    return [*lines, "    }", "", ""]


def write_struct(struct: Struct) -> list[str]:
    """The writer of one struct, from an object's attributes of the same names."""
    noun = struct.name.removeprefix("cow_mlx_")
    lines = [f"cdef int put_{noun}({struct.name}* out, object value) except -1:"]
    for name, type_ in struct.members or ():
        if name != "struct_size":
            value = f"value.{name}"
            is_real = type_.name in ("float", "double")
            lines.append(f"    out.{name} = {f'to_real({value})' if is_real else value}")
    return [*lines, "    return 0", "", ""]


def arguments(call: Call) -> str:
    """The declaration of a call's typed arguments."""
    kind = f"const cow_{call.name}_args*"
    line = f"    cdef {kind} a = <{kind}> r.args"
    return line if len(line) <= WIDTH else f"    cdef {kind} a\n    a = <{kind}> r.args"


def reader(call: Call) -> list[str]:
    """The reader of one call's arguments."""
    lines = [f"cdef tuple read_{call.name}(cow_request* r):"]
    if call.inputs:
        lines.append(arguments(call))
    values = [f"        {read(role)}," for role in call.inputs]
    return [*lines, "    return (", *values, "    )", "", ""]


def read(role: Role) -> str:
    """One argument as the engine gets it."""
    match role.kind:
        case "string" | "text":
            return f'to_{role.kind}(a.{role.name}, "{role.name}")'
        case "tokens" | "texts" | "handles" | "values":
            return f"to_{role.kind}(a.{role.name})"
        case "strings":
            items = f"a.{role.name}.data, a.{role.name}.count"
            return f'to_strings({items}, "{role.name}", "{role.count}")'
        case "values_out":
            return f"to_results(a.{role.name})"
        case "params":
            noun = role.type.name.removeprefix("cow_mlx_")
            return f"to_{noun}(a.{role.name})"
    return f"a.{role.name}"


def writer(call: Call) -> list[str]:
    """The writer of one call's result: one value, or a tuple of several."""
    lines = [f"cdef int write_{call.name}(cow_request* r, object value) except -1:"]
    if call.outputs:
        lines.append(arguments(call))
    if sum(bool(role.buffers) for role in call.outputs) > 1:
        raise ValueError(f"{call.name}: one buffer may be written when another is too small")
    buffers, others = [], []
    places = sum(len(role.buffers) or 1 for role in call.outputs)
    index = 0
    for role in call.outputs:
        for name, type_ in role.buffers or ((role.name, role.type),):
            value = "value" if places == 1 else f"value[{index}]"
            index += 1
            if role.buffers:
                asks = ", False" if Is.CONSUMES in call.properties else ""
                first = role.buffers[0][0]  # which asks for the size where it is NULL
                if name != first:
                    buffers.append(f"    if a.{first}.buffer != NULL:")
                indent = "    " if name == first else "        "
                buffers.append(f"{indent}{PUTS[type_.name]}(a.{name}, {value}{asks})")
            elif role.kind == "values_out":
                others.append(f"    put_results(a.{name}, {value})")
            elif role.kind == "handles_out":
                buffers.append(f"    put_arrays(a.{name}, {value})")
            elif role.kind == "struct_out":
                others.append(f"    put_{type_.name.removeprefix('cow_mlx_')}(a.{name}, {value})")
            else:
                others.append(f"    a.{name}[0] = {value}")
    # Buffers first: one that is too small leaves all else untouched.
    return [*lines, *buffers, *others, "    return 0", "", ""]
