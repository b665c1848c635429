"""Writes the parts of the Go binding that repeat the header: functions, constants and structs.

C's structs are structs of Go with the same layout. Params that hosts fill are other ones, with
slices, strings and functions, which lower to them.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

from tools.bindings import hosts, own_names
from tools.bindings.calls import PREFIX, Call, Field, callback_types
from tools.bindings.calls import read as read_calls
from tools.bindings.header import Header, Signature, Type
from tools.bindings.hosts import Layout, Member

TYPES = {
    "bool": "bool",
    "_Bool": "bool",
    "float": "float32",
    "double": "float64",
    "int32_t": "int32",
    "uint32_t": "uint32",
    "int64_t": "int64",
    "uint64_t": "uint64",
    "size_t": "uintptr",
}
# Parameters that receive one number, of calls without roles; others are buffers.
ONE = ("out", "length", "dtype", "rank")
# Structs that C fills and hosts read; a piece also has its text.
RECORDS = {"piece": ("Text string // whole UTF-8 characters",), "stats": (), "training_event": ()}
RECORDS |= {"event": ()}
ENUMS = {**hosts.TYPES_OF_ENUMS, "GRAMMAR": "Grammar", "FLAGS": "Flags"}
# Prefixes of constants whose type's name would be too long.
PREFIXES = {"EVENT": "Event", "TRAINING": "Training", "FIT": "Fit", "LOG": "Log", "FLAGS": ""}
INITIALS = {"json": "JSON", "gbnf": "GBNF", "cls": "CLS", "kv": "KV", "xtc": "XTC", "int8": "Int8"}


def files(public: Header, params: dict[str, list[Field]], generated: str) -> dict[str, str]:
    """The text of each file, by its name."""
    head = (
        f"// Code g{generated[1:].replace('; do not edit.', '. DO NOT EDIT.')}\n\npackage cowmlx\n"
    )
    return {
        "functions.go": head + functions(public),
        "constants.go": head + constants(public),
        "structs.go": head + structs(public),
        "params.go": head + all_params(public, params),
        "names.go": head + names(public),
    }


# Parameters that have other names in Go than their C names in Go's spelling.
PARAMETERS = {"timeout_ms": "milliseconds", "spec_json": "spec", "messages_json": "messages"}
PARAMETERS |= {"options_json": "options", "attributes_json": "attributes"}


def names(public: Header) -> str:
    """The names of calls, fields, parameters and constants in Go, for errors."""
    fields = own_names.fields(public)
    parameters = {
        name: PARAMETERS.get(name, field_name(name))
        for name in own_names.parameters(public)
        if name not in fields
    }
    constants = {
        f"{hosts.MACROS}{name if group == 'FLAGS' else f'{group}_{name}'}": (
            f"{PREFIXES.get(group, ENUMS[group])}{pascal(name)}"
        )
        for group, values in hosts.enumerations(public).items()
        for name in values
    }
    constants[f"{hosts.MACROS}DTYPES"] = "the constants of Dtype"
    tables = {
        "ownCalls": ("what each call of C is here", own_names.calls(own_names.GO, public)),
        "ownFields": ("what the fields of params are", {name: pascal(name) for name in fields}),
        "ownParameters": ("what parameters are", parameters),
        "ownConstants": ("what constants are", constants),
    }
    lines = []
    for name, (about, entries) in tables.items():
        pairs = (f'"{key}": "{value}",' for key, value in entries.items())
        lines += block(f"// {name} is {about}.\nvar {name} = map[string]string{{", pairs)
    named = (f'{status_name(name)}: "{name}",' for name in public.statuses)
    about = "// statusNames are the names of statuses."
    lines += block(f"{about}\nvar statusNames = map[Status]string{{", named)
    return "\n".join([*aligned(lines), ""])


def status_name(name: str) -> str:
    """The constant of a status."""
    said = name[0] + name[1:].lower() if name[0] != "E" else f"E{name[1:].capitalize()}"
    return f"Status{said}"


def functions(public: Header) -> str:
    """The functions of the library, which load() fills."""
    functions = {function.name: function.signature for function in public.functions}
    ones = {call.function.name: numbers(call) for call in read_calls(public)}
    fields = (
        f"{local(name)} {signature(of, public, ones.get(name, ONE))}"
        for name, of in functions.items()
    )
    lines = [
        "",
        'import "unsafe"',
        *block("// api has the functions of cow_mlx.h.\nvar api struct {", fields),
    ]
    places = (f'"{name}": &api.{local(name)},' for name in functions)
    about = "// symbols are their names in the library."
    lines += block(f"{about}\nvar symbols = map[string]any{{", places)
    return "\n".join([*aligned(lines), ""])


def numbers(call: Call) -> list[str]:
    """The parameters of a call that receive one number."""
    sizes = [role.names[-1] for role in call.outputs if role.kind == "buffers_out"]
    return [role.name for role in call.outputs if role.kind == "value_out"] + sizes


def signature(of: Signature, public: Header, ones: Sequence[str] = ONE) -> str:
    """The type of a function, of which some parameters receive one number."""
    params = ", ".join(
        f"{word(name)} {plain(type_, public, name, ones)}" for name, type_ in of.params
    )
    if of.result == Type("char", ("*",), True):
        return f"func({params}) string"
    result = "" if of.result == Type("void") else f" {plain(of.result, public)}"
    return f"func({params}){result}"


def plain(type_: Type, public: Header, param: str = "", ones: Sequence[str] = ()) -> str:
    """The type of a parameter: a pointer to one number is that, all others are just pointers."""
    callbacks = {alias.name for alias in callback_types(public)}
    if type_.name in callbacks or param == "user_data":
        return "uintptr"
    name = TYPES.get(hosts.resolved(type_.name, public).replace("cow_mlx_status", "int32_t"))
    if type_.pointers:
        return f"*{name}" if name and param in ones else "unsafe.Pointer"
    assert name, type_
    return name


# ------------------------------------------------------------------------------ Constants


def block(opening: str, entries: Iterable[str], closing: str = "}") -> list[str]:
    """A declaration of several lines, below an empty one."""
    return ["", *opening.split("\n"), *(f"\t{entry}" for entry in entries), closing]


def constants(public: Header) -> str:
    """Statuses, dtypes and the lists of constants, each a type."""
    dtypes = {pascal(name): (name.lower(), *pair) for name, pair in public.dtypes.items()}
    macros = [
        f'Version = "{public.macros[hosts.MACROS + "VERSION"]}"',
        f"ABIVersion = {public.macros[hosts.MACROS + 'ABI_VERSION']}",
        f"MaxRank = {public.macros[hosts.MACROS + 'MAX_RANK']}",
    ]
    lines = block("// The header that this was generated from.\nconst (", macros, ")")
    statuses = (f"{status_name(name)} Status = {value}" for name, value in public.statuses.items())
    lines += ["", "// A Status is what a call returns.", "type Status int32"]
    lines += block("const (", statuses, ")")
    lines += [
        "",
        "// A Dtype is a type of elements: 16-bit floats are their bits.",
        "type Dtype int32",
    ]
    lines += block("const (", (f"{n} Dtype = {value}" for n, (_, value, _) in dtypes.items()), ")")
    named = (f'{name}: "{text}",' for name, (text, *_) in dtypes.items())
    lines += block("var dtypeNames = map[Dtype]string{", named)
    sizes = (f"{name}: {size}," for name, (*_, size) in dtypes.items())
    lines += block("var dtypeBytes = map[Dtype]int64{", sizes)
    for group, values in hosts.enumerations(public).items():
        lines += enumeration(group, values)
    return "\n".join([*aligned(lines), ""])


def enumeration(group: str, values: dict[str, int]) -> Iterable[str]:
    """A list of constants as a type; flags have no names, since they can be combined."""
    type_ = ENUMS[group]
    own = {name: f"{PREFIXES.get(group, type_)}{pascal(name)}" for name in values}
    about = f"{type_} is of COW_MLX_{group}_."
    if group == "FLAGS":
        about = "Flags are of tokenizing and detokenizing; they can be combined."
    yield from ("", f"// {about}", f"type {type_} int32")
    yield from block("const (", (f"{own[n]} {type_} = {value}" for n, value in values.items()), ")")
    if group != "FLAGS":
        named = (f'{constant}: "{name.lower()}",' for name, constant in own.items())
        yield from block(f"var names{type_} = map[{type_}]string{{", named)
        yield from ("", f"func (value {type_}) String() string {{ return names{type_}[value] }}")


# -------------------------------------------------------------------------------- Structs


def structs(public: Header) -> str:
    """C's structs, and the exported forms of those that C fills."""
    lines = ["", 'import "unsafe"']
    for layout in hosts.layouts(public):
        lines += ["", f"type {c_name(layout)} struct {{"]
        lines += [f"\t{field_name(member.name)} {c_type(member)}" for member in layout.members]
        lines += ["}"]
        if layout.name in RECORDS:
            lines += record(layout)
    return "\n".join([*aligned(lines), ""])


def record(layout: Layout) -> Iterable[str]:
    """The exported struct, and how it is read."""
    name = pascal(layout.name)
    shown = [member for member in layout.members if member.name not in ("struct_size", "length")]
    yield ""
    yield f"// {name} is what cow_mlx_{layout.name}."
    yield f"type {name} struct {{"
    for extra in RECORDS[layout.name]:
        yield f"\t{extra}"
    for each in shown:
        yield from comment(each.about)
        yield f"\t{pascal(each.name)} {go_type(each)}"
    yield "}"
    yield ""
    yield f"func (c *{c_name(layout)}) goForm() {name} {{"
    yield f"\treturn {name}{{"
    yield from (f"\t\t{pascal(each.name)}: {reading(each, layout)}," for each in shown)
    yield "\t}"
    yield "}"


def reading(each: Member, layout: Layout) -> str:
    """The expression that reads a member of a struct that C has filled."""
    place = f"c.{field_name(each.name)}"
    if each.kind == "string":
        counted = each.name == "text" and any(m.name == "length" for m in layout.members)
        return f"textAt({place}, {'int(c.length)' if counted else '-1'})"
    return f"{go_type(each)}({place})"


def c_type(each: Member) -> str:
    """A member's type in C's struct."""
    if each.kind == "callback" or each.name.endswith("user_data"):
        return "uintptr"
    return TYPES[each.type] if each.kind == "scalar" else "unsafe.Pointer"


def go_type(each: Member) -> str:
    """A member's type for hosts."""
    if each.kind == "callback":
        return f"{pascal(each.type.removeprefix(PREFIX).removesuffix('_fn'))}Func"
    if each.kind in ("string", "strings"):
        return "string" if each.kind == "string" else "[]string"
    if each.noun:
        noun = "*Array" if each.noun == "array" else f"*{pascal(each.noun)}"
        return f"[]{noun}" if each.kind == "array" else noun
    if each.kind == "array":
        return f"[]{TYPES[each.type]}"
    return ENUMS.get(each.enumeration, TYPES[each.type].replace("uintptr", "uint64"))


# --------------------------------------------------------------------------------- Params


def all_params(public: Header, params: dict[str, list[Field]]) -> str:
    """The params that hosts fill, with their defaults."""
    lines = ["", 'import "unsafe"']
    enumerators = {
        f"{hosts.MACROS}{group}_{name}": f"{PREFIXES.get(group, ENUMS[group])}{pascal(name)}"
        for group, values in hosts.enumerations(public).items()
        for name in values
    }
    for layout in hosts.layouts(public):
        if layout.name.endswith("_params"):
            fields = {field.name: field for field in params[layout.name.removesuffix("_params")]}
            lines += one_params(layout, fields, enumerators)
    return "\n".join([*aligned(lines), ""])


def one_params(
    layout: Layout, fields: dict[str, Field], enumerators: dict[str, str]
) -> Iterable[str]:
    """One struct of params."""
    name = pascal(layout.name)
    members = [
        member
        for member in layout.members
        if not member.name.endswith(("_count", "user_data")) and member.name != "struct_size"
    ]
    yield ""
    yield f"// {name} are made by New{name}, with the defaults; nil stands for these."
    yield f"type {name} struct {{"
    for member in members:
        yield from comment(member.about)
        yield f"\t{pascal(member.name)} {go_type(member)}"
    yield "}"
    yield ""
    yield f"// New{name} gives the defaults."
    yield f"func New{name}() *{name} {{"
    given = [
        f"{pascal(member.name)}: {enumerators.get(default, default)}"
        for member in members
        if (default := fields[member.name].default if member.name in fields else "")
    ]
    yield f"\treturn &{name}{{{', '.join(given)}}}"
    yield "}"
    yield ""
    yield f"func (p *{name}) lower(l *lowering) unsafe.Pointer {{"
    yield "\tif p == nil {"
    yield "\t\treturn nil"
    yield "\t}"
    yield f"\tc := &{c_name(layout)}{{structSize: unsafe.Sizeof({c_name(layout)}{{}})}}"
    places = {member.name for member in layout.members}
    for member in members:
        yield from (f"\t{line}" for line in lowered(member, layout, places))
    yield "\tl.keep(c)"
    yield "\treturn unsafe.Pointer(c)"
    yield "}"


def lowered(each: Member, layout: Layout, places: set[str]) -> Iterable[str]:
    """The statements that write a member."""
    to, given = f"c.{field_name(each.name)}", f"p.{pascal(each.name)}"
    place = f'"{pascal(each.name)}"'
    if each.kind == "callback":
        user = "log_user_data" if "log_user_data" in places else "user_data"
        kind = each.type.removeprefix(PREFIX).removesuffix("_fn")
        yield f"if {given} != nil {{"
        yield f"\tl.on.{kind} = {given}"
        yield f"\t{to}, c.{field_name(user)} = trampolines.{kind}, l.id()"
        yield "}"
    elif each.kind == "string":
        yield f"{to} = l.optional({place}, {given})"
    elif each.kind in ("strings", "array"):
        how = "strings" if each.kind == "strings" else "arrays" if each.noun else "numbers"
        of = f"{how}(l, {given})" if how == "numbers" else f"l.{how}({place}, {given})"
        yield f"{to} = {of}"
        yield f"l.count({place}, &c.{field_name(each.count)}, len({given}))"
    elif each.noun:
        yield f"if {given} != nil {{"
        yield f'\t{to} = l.open({place}, "{each.noun}", {given}.handle())'
        yield "}"
    else:
        yield f"{to} = {TYPES[each.type]}({given})"


# ---------------------------------------------------------------------------------- Names


def comment(text: str) -> list[str]:
    """A comment above a member."""
    return [f"\t// {line}" for line in textwrap.wrap(text, 92, break_long_words=False)]


def aligned(lines: Iterable[str]) -> list[str]:
    """Lines as gofmt has them: neighbours of a block have their columns below each other."""
    rows: list[str] = []
    block: list[list[str]] = []

    def close() -> None:
        widths = [max(len(row[at]) for row in block) for at in range(2)] if block else []
        for first, second, rest in block:
            text = first.ljust(widths[0] + 1) + second
            rows.append((text.ljust(widths[0] + 2 + widths[1]) + rest).rstrip() if rest else text)
        block.clear()

    for line in lines:
        row = columns(line)
        if row is None or (block and bool(block[0][2]) != bool(row[2])):
            close()
        if row is None:
            rows.append(line)
        else:
            block.append(row)
    close()
    return rows


def columns(line: str) -> list[str] | None:
    """The columns of a line of a struct, a list of constants or a map."""
    if constant := re.fullmatch(r"(\t\w+)( \w+)? (= \S+)", line):
        type_ = (constant[2] or "").strip()
        return [constant[1], type_, constant[3]] if type_ else [constant[1], constant[3], ""]
    if pair := re.fullmatch(r"(\t+\"?\w+\"?:) (\S.*,)", line):
        return [pair[1], pair[2], ""]
    field = re.fullmatch(r"(\t\w+) ((?!=|:)[\w*\[\].]+|func\(.*)( // .*)?", line)
    if field is None or field[1].strip() in ("return", "if", "l"):
        return None
    return [field[1], field[2] + (field[3] or ""), ""]


def c_name(layout: Layout) -> str:
    """The name of C's struct."""
    return f"c{pascal(layout.name)}"


def pascal(name: str) -> str:
    """Write a name as exported ones are: MaxTokens."""
    return "".join(INITIALS.get(part, part.capitalize()) for part in name.lower().split("_"))


def field_name(name: str) -> str:
    """Write a name as others are: maxTokens."""
    first, *others = name.split("_")
    return first + "".join(INITIALS.get(part, part.capitalize()) for part in others)


def local(name: str) -> str:
    """The name of a function."""
    return field_name(name.removeprefix(PREFIX))


def word(name: str) -> str:
    """The name of a parameter, which must be no keyword."""
    return {"range": "within", "type": "kind"}.get(field_name(name), field_name(name))
