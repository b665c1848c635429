"""Writes the C side of the calls: operations, their typed arguments, bodies and defaults."""

from __future__ import annotations

import hashlib

from tools.bindings import call_table
from tools.bindings.call_table import Is
from tools.bindings.calls import Call, Field, Role
from tools.bindings.header import Type

MEMBERS = {"string": "const char*", "text": "cow_text", "tokens": "cow_tokens"}
MEMBERS |= {"texts": "cow_texts", "strings": "cow_strings", "handles": "cow_handles"}
MEMBERS |= {"handles_out": "cow_arrays_out"}
MEMBERS |= {"values": "cow_values", "values_out": "cow_results"}
OUTPUTS = {"char": "cow_text_out", "int32_t": "cow_tokens_out", "float": "cow_floats_out"}
OUTPUTS |= {"cow_mlx_array": "cow_arrays_out"}


def call_arguments(calls: list[Call], shared: str, generated: str) -> str:
    """The text of call_arguments.h; ``shared`` is all else both sides of the bridge rely on."""
    by_hand = [f"COW_OP_{name.upper()}" for name in call_table.names(Is.REQUESTED)]
    names = by_hand + [call.op for call in calls]
    body = [
        "/* One operation per call that reaches the dispatch thread. */",
        "typedef enum cow_op {",
    ]
    body += [f"  {name}," for name in names] + ["  COW_OP_COUNT", "} cow_op;", ""]
    body += ["/* The arguments of each; a call without any has none. */"]
    for call in calls:
        if call.roles:
            body += [f"typedef struct cow_{call.name}_args {{"]
            body += [f"  {line};" for role in call.roles for line in members(role)]
            body += [f"}} cow_{call.name}_args;", ""]
    text = "\n".join(body)
    digest = hashlib.sha256((text + shared).encode()).hexdigest()[:8]
    return "\n".join(
        [
            f"/* {generated} */",
            "/* clang-format off */",
            "#ifndef COW_CALL_ARGUMENTS_H",
            "#define COW_CALL_ARGUMENTS_H",
            "",
            '#include "arguments.h"',
            "",
            "/* Of this file and the headers that both sides include; compared at start. */",
            f"#define COW_BRIDGE_ABI {int(digest, 16) >> 1}",
            "",
            text,
            "#endif",
            "",
        ]
    )


def members(role: Role) -> list[str]:
    """The members of the typed arguments that a role has."""
    if role.kind == "callback":
        return []
    if role.buffers:
        return [f"{OUTPUTS[type_.name]} {name}" for name, type_ in role.buffers]
    return [f"{MEMBERS.get(role.kind) or spell(role.type)} {role.name}"]


def bodies(calls: list[Call], in_params: dict[str, list[tuple[str, str]]], generated: str) -> str:
    """The text of calls.c."""
    head = [
        f"/* {generated} */",
        "/* clang-format off */",
        '#include "boot/runtime.h"',
        "",
        "/* Each checks its arguments, fills a request and waits. No policy. */",
        "",
    ]
    made = [call for call in calls if Is.BODY_BY_HAND not in call.properties]
    return "\n".join(head + [line for call in made for line in body(call, in_params)])


def body(call: Call, in_params: dict[str, list[tuple[str, str]]]) -> list[str]:
    """One call."""
    params = ", ".join(f"{spell(type_)} {name}" for name, type_ in call.function.signature.params)
    lines = [f"cow_mlx_status {call.function.name}({params or 'void'}) {{", "  BEGIN_CALL;"]
    lines += [f"  {check}" for role in call.roles for check in checks(role)]
    for role in call.roles:
        if role.kind == "params":
            noun = role.type.name.removeprefix("cow_mlx_").removesuffix("_params")
            lines.append(f"  {role.type.name} effective;")
            lines.append(f"  TRY(COW_READ_PARAMS({noun}, OPERATION, {role.name}, &effective));")
        elif role.kind == "struct_out":
            lines.append(f"  {role.type.name} result = {{.struct_size = sizeof result}};")
    request = [f".op = {call.op}"]
    filled = [value for role in call.roles for value in values(role)]
    if filled:
        lines += [
            f"  cow_{call.name}_args args = {{",
            *(f"      {line}," for line in filled),
            "  };",
        ]
        request.append(".args = &args")
    if call.subject:
        noun, name = call.subject
        request.append(f".{noun} = {name}")
    if fields := callbacks(call, in_params):
        request.append(f".callbacks = {{{', '.join(fields)}}}")
    many = [name for role in call.outputs for name, type_ in role.buffers if type_.name == "float"]
    if many:
        request.append(f".floats = &args.{many[0]}")
    lines += ["  cow_request r = {", *(f"      {line}," for line in request), "  };"]
    written = [role for role in call.roles if role.kind == "struct_out"]
    if not written:
        return [*lines, "  return CALL(r);", "}", ""]
    out = written[0].name
    write = f"cow_params_write({out}, &result, sizeof result);"
    guard = f"{out} && status >= COW_MLX_OK" if written[0].nullable else "status >= COW_MLX_OK"
    lines += ["  cow_mlx_status status = CALL(r);", f"  if ({guard}) {write}"]
    return [*lines, "  return status;", "}", ""]


def checks(role: Role) -> list[str]:
    """What is checked before anything else is done."""
    match role.kind:
        case "string" | "params" if not role.nullable:
            return [f"REQUIRE({role.name});"]
        case "text":
            required = [] if role.nullable else [f"REQUIRE({role.name});"]
            return [*required, f"REQUIRE_TEXT({', '.join(role.names)});"]
        case "tokens":
            return [f"REQUIRE_TOKENS({', '.join(role.names)});"]
        case "strings" | "handles" | "handles_out":
            return [f"REQUIRE_TOKENS({role.name}, {role.count});"]
        case "texts":
            return [f"REQUIRE_TEXTS({', '.join(role.names)});"]
        case "buffers_out":
            *buffers, capacity, size = role.names
            lines = [f"REQUIRE_BUFFER({buffer}, {capacity});" for buffer in buffers]
            return [*lines, f"REQUIRE({size});"]
        case "value_out":
            return [f"REQUIRE({role.name});"]
        case "struct_out":
            noun = role.type.name.removeprefix("cow_mlx_")
            names = f'"{role.name}", "{noun}"'
            check = f"TRY(cow_params_check_size(OPERATION, {names}, {role.name}));"
            if role.nullable:
                return [f"if ({role.name}) {check}"]
            return [f"REQUIRE({role.name});", check]
    return []


def values(role: Role) -> list[str]:
    """The typed arguments of a role."""
    match role.kind:
        case "callback":
            return []
        case "params":
            return [f".{role.name} = &effective"]
        case "struct_out":
            return [f".{role.name} = &result"]
        case "text":
            return [f".{role.name} = text_of({', '.join(role.names)})"]
        case "tokens" | "texts":
            return [f".{role.name} = {{{', '.join(role.names)}}}"]
        case "strings" | "handles":
            return [f".{role.name} = {{{role.name}, {role.count}}}"]
        case "handles_out":
            return [f".{role.name} = {{{role.name}, {role.count}, NULL}}"]
        case "buffers_out":
            rest = ", ".join(role.names[-2:])
            return [f".{name} = {{{name}, {rest}}}" for name, _ in role.buffers]
    return [f".{role.name} = {role.name}"]


def callbacks(call: Call, in_params: dict[str, list[tuple[str, str]]]) -> list[str]:
    """The callbacks of a call and of its params, by the kind of event."""
    fields = []
    for role in call.roles:
        if role.kind == "callback":
            what = role.type.name.removeprefix("cow_mlx_").removesuffix("_fn")
            fields += [f".{what} = {role.name}", f".{what}_data = {role.names[1]}"]
        elif role.kind == "params":
            for what, member in in_params[role.type.name]:
                fields += [f".{what} = effective.{member}", f".{what}_data = effective.user_data"]
    return fields


def defaults(params: dict[str, list[Field]], generated: str) -> str:
    """The text of defaults.c."""
    lines = [f"/* {generated} */", "/* clang-format off */", '#include "base/checks.h"', ""]
    for noun, fields in params.items():
        struct = f"cow_mlx_{noun}_params"
        lines += [f"void {struct}_init({struct}* params, size_t size) {{"]
        lines += [f"  static const {struct} defaults = {{", "      .struct_size = sizeof defaults,"]
        lines += [f"      .{field.name} = {field.default}," for field in fields if field.default]
        lines += ["  };", "  cow_params_init(params, size, &defaults, sizeof defaults);", "}", ""]
    return "\n".join(lines)


def copies(calls: list[Call], params: dict[str, list[Field]], generated: str) -> str:
    """The text of copies.c."""
    structs = {
        role.type.name
        for call in calls
        if Is.ASYNC in call.properties
        for role in call.roles
        if role.kind == "params"
    }
    lines = [f"/* {generated} */", "/* clang-format off */", '#include "calls/async_calls.h"', ""]
    for struct in sorted(structs):
        noun = struct.removeprefix("cow_mlx_").removesuffix("_params")
        lines.append(f"void cow_detached_{noun}_params(cow_detached* to, {struct}* params) {{")
        for field in params[noun]:
            given = f"params->{field.name}"
            match field.kind:
                case "string":
                    lines.append(f"  {given} = cow_detached_string(to, {given});")
                case "strings":
                    copied = f"cow_detached_strings(to, {given}, params->{field.count})"
                    lines.append(f"  {given} = {copied};")
                case "values":
                    size = f"params->{field.count}, sizeof *{given}"
                    lines.append(f"  {given} = cow_detached_values(to, {given}, {size});")
        lines += ["}", ""]
    return "\n".join(lines)


def spell(type_: Type) -> str:
    """A type that is no function pointer."""
    return (
        ("const " if type_.const else "")
        + type_.name.replace("_Bool", "bool")
        + "".join(type_.pointers)
    )
