"""Writes the declarations of the Node.js binding: prototypes, roles and layouts.

They are data, which bindings/node/lib/calls.js reads: a call is lowered by the roles of its
parameters, a struct is written by its layout.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from tools.bindings import hosts, own_names
from tools.bindings.calls import PREFIX, Role, callback_types
from tools.bindings.calls import read as read_calls
from tools.bindings.header import Function, Header, Signature, Type
from tools.bindings.hosts import camel

# Every pointer is an address, which calls.js makes; text that is returned is read at once.
TEXT = Type("char", ("*",), True)
GIVEN = ("piece", "stats", "training_event")  # structs that calls give


def declarations(public: Header, generated: str) -> str:
    """Return the text of bindings/node/lib/generated/declarations.js."""
    macros = {name.removeprefix(hosts.MACROS): value for name, value in public.macros.items()}
    constants = [
        f"export const {name} = {json.dumps(macros[name])};"
        for name in ("VERSION", "ABI_VERSION", "MAX_RANK")
    ]
    groups = {
        group: {name.lower(): value for name, value in values.items()}
        for group, values in hosts.enumerations(public).items()
    }
    dtypes = {name.lower(): list(pair) for name, pair in public.dtypes.items()}
    callbacks = {
        alias.name.removeprefix(PREFIX): prototype(alias.name, alias.type.function, public)
        for alias in callback_types(public)
        if alias.type.function
    }
    functions = {
        short(item): prototype(item.name, item.signature, public) for item in public.functions
    }
    calls = {call.name: [role(each, public) for each in call.roles] for call in read_calls(public)}
    parameters = {
        short(item): [name for name, _ in item.signature.params]
        for item in public.functions
        if short(item) in calls
    }
    return "\n".join(
        [
            f"// {generated}",
            "",
            *constants,
            "",
            *table("STATUSES", "By name.", public.statuses),
            *table("REASONS", "The keys of the details of each.", public.reasons),
            *table("DTYPES", "The value and the bytes of each.", dtypes),
            *table("ENUMERATIONS", "Lists of constants, which are texts in JavaScript.", groups),
            *table(
                "STRUCTS", "Of members [offset, kind, type, count, enumeration].", structs(public)
            ),
            *table("CALLBACKS", "The prototypes of callbacks.", callbacks),
            *table("FUNCTIONS", "The prototypes of functions.", functions),
            *table("PARAMETERS", "Of each call, in their order.", parameters),
            *table("ROLES", "What they are.", calls),
            *table("CALLS", "What each call is here.", own_names.calls(own_names.NODE, public)),
        ]
    )


def types(public: Header, generated: str) -> str:
    """Return the text of bindings/node/lib/generated/types.js: objects of calls, for TypeScript."""
    groups, handles = hosts.enumerations(public), hosts.handle_members(public)
    lines = [f"// {generated}", ""]
    for layout in hosts.layouts(public):
        members = [member for member in layout.members if is_shown(member, layout)]
        takes = layout.name.endswith("_params")
        if members and (takes or layout.name in GIVEN):
            lines += ["/**", f" * @typedef {{object}} {camel(f'_{layout.name}')}"]
            for member in members:
                name = camel(member.name)
                shown = f"[{name}]" if takes else name
                kind = script_type(member, groups, takes)
                own = ' | import("./handle.js").Handle' if member.name in handles else ""
                lines.append(f" * @property {{{kind}{own}}} {shown}")
            lines += [" */", ""]
    return "\n".join([*lines, "export {};", ""])


def is_shown(member: hosts.Member, layout: hosts.Layout) -> bool:
    """Whether JavaScript has a member; the binding sets sizes and counts."""
    counts = {each.count for each in layout.members}
    return member.name not in {"struct_size", *counts} and member.kind != "pointer"


def script_type(member: hosts.Member, groups: Mapping[str, Iterable[str]], takes: bool) -> str:
    """The type of a member as TypeScript has it."""
    if member.kind == "callback":
        return "(...args: any[]) => any"
    if member.kind == "string":  # an object stands for its JSON
        return "string | object" if takes else "string"
    if member.kind == "strings":
        return "string[]"
    if member.kind == "array":
        return "ArrayLike<any>"
    if member.enumeration:
        values = " | ".join(f'"{value.lower()}"' for value in groups[member.enumeration])
        return f"{values} | number" if takes else values
    if member.type == "bool":
        return "boolean"
    return "number | bigint" if takes and member.type in ("size_t", "uint64_t") else "number"


def table(name: str, about: str, entries: Mapping[str, object]) -> Iterable[str]:
    """One exported object, an entry a line."""
    yield f"/** {about} */"
    yield f"export const {name} = {{"
    for key, value in entries.items():
        if isinstance(value, dict) and "members" in value:
            yield f"  {key}: {{"
            yield f"    size: {value['size']},"
            yield "    members: {"
            yield from (f"      {k}: {json.dumps(v)}," for k, v in value["members"].items())
            yield "    },"
            yield "  },"
        else:
            yield f"  {key}: {json.dumps(value)},"
    yield "};"
    yield ""


def structs(public: Header) -> dict[str, object]:
    """The layouts, by name."""
    return {
        layout.name: {
            "size": layout.size,
            "members": {
                member.name: [
                    member.offset,
                    member.kind,
                    member.type,
                    member.count,
                    member.enumeration,
                ]
                for member in layout.members
            },
        }
        for layout in hosts.layouts(public)
    }


def role(each: Role, public: Header) -> dict[str, object]:
    """One role as an object."""
    described: dict[str, object] = {"kind": each.kind, "names": list(each.names)}
    if each.kind == "buffers_out":
        described["types"] = [hosts.element(type_, public) for _, type_ in each.buffers]
    elif each.kind in ("scalar", "value_out", "struct_out", "params", "callback"):
        described["type"] = hosts.element(each.type, public)
    if each.count:
        described["names"] = [*each.names, each.count]
    return described


def prototype(name: str, signature: Signature, public: Header) -> str:
    """A prototype that koffi reads."""
    params = ", ".join(f"{spell(type_, public)} {name}" for name, type_ in signature.params)
    result = "const char*" if signature.result == TEXT else spell(signature.result, public)
    return f"{result} {name}({params})"


def spell(type_: Type, public: Header) -> str:
    """A type as koffi has it."""
    name = hosts.resolved(type_.name, public)
    if type_.pointers or name in {alias.name for alias in callback_types(public)}:
        return "void*"
    return name.replace("cow_mlx_status", "int32_t")


def short(item: Function) -> str:
    """A function's name without the library's prefix."""
    return item.name.removeprefix(PREFIX)
