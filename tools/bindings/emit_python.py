"""Writes the Python modules that repeat what the headers say."""

from __future__ import annotations

import json
import re

from tools.bindings.calls import Field
from tools.bindings.header import Alias, Enum, Function, Header, Signature, Struct, Type

BASE = {
    "_Bool": "c_bool",
    "bool": "c_bool",
    "float": "c_float",
    "double": "c_double",
    "size_t": "c_size_t",
    "int32_t": "c_int32",
    "uint32_t": "c_uint32",
    "int64_t": "c_int64",
    "uint64_t": "c_uint64",
}

# Structs that others declare; here only pointers to them.
OPAQUE = ("DLManagedTensorVersioned",)

PREFIX = "COW_MLX_"


def status(public: Header, generated: str) -> str:
    """Return the text of cowmlx/generated/status.py."""
    constants = [f"{name} = {value}" for name, value in public.statuses.items()]
    names = [f'    {value}: "{name}",' for name, value in public.statuses.items()]
    lines = [f'"""{generated}"""', "", *constants, "", "NAMES = {", *names, "}"]
    return "\n".join(lines) + "\n"


def reasons(public: Header, generated: str) -> str:
    """Return the text of cowmlx/generated/reasons.py."""
    names = [f'    "{name}",' for name in public.reasons]
    head = [f'"""{generated}"""', "", "from typing import Literal", "", "Reason = Literal["]
    keys = [f'    "{name}": {json.dumps(keys)},' for name, keys in public.reasons.items()]
    opened = [
        "",
        "# The reasons of failures, and the keys of their details.",
        "REASONS: dict[str, list[str]] = {",
    ]
    return "\n".join([*head, *names, "]", *opened, *keys, "}"]) + "\n"


def flags(public: Header) -> dict[str, int]:
    """The constants of the public enums without their prefix, statuses excepted."""
    statuses = {PREFIX + name for name in public.statuses}
    pairs = [pair for enum in public.enums() for pair in enum.values.items()]
    return {name.removeprefix(PREFIX): value for name, value in pairs if name not in statuses}


def constants(public: Header, bridge: Header, generated: str) -> str:
    """Return the text of cowmlx/generated/constants.py."""
    version, abi = public.macros[PREFIX + "VERSION"], public.macros[PREFIX + "ABI_VERSION"]
    lines = [f'"""{generated}"""', "", f'VERSION = "{version}"', f"ABI_VERSION = {abi}"]
    lines += [f"MAX_RANK = {public.macros[PREFIX + 'MAX_RANK']}", ""]
    lines += [f"{name} = {value}" for name, value in flags(public).items()]
    lines += ["", "# Each dtype by mlx's name: its value and its size in bytes.", "DTYPES = {"]
    lines += [f'    "{name.lower()}": {pair},' for name, pair in public.dtypes.items()]
    lines += ["}", ""]
    handles = {k: v for k, v in bridge.macros.items() if k.startswith("COW_HANDLE_")}
    kinds = next(enum.values for enum in bridge.enums() if enum.name == "cow_kind")
    lines += [f"{k.removeprefix('COW_')} = {v}" for k, v in {**handles, **kinds}.items()]
    return "\n".join(lines) + "\n"


def defaults(params: dict[str, list[Field]], public: Header, generated: str) -> str:
    """Return the text of cowmlx/generated/defaults.py."""
    known = {name: value for enum in public.enums() for name, value in enum.values.items()}
    lines = [f'"""{generated}"""', "", "from typing import Any", ""]
    lines += ["# The fields of every params struct, as its _init function sets them.", ""]
    for noun, fields in params.items():
        members = [f'    "{field.name}": {default(field, known)},' for field in fields]
        opened = f"{noun.upper()}: dict[str, Any] = {{"
        lines += [opened, *members, "}", ""] if members else [f"{opened}}}", ""]
    return "\n".join(lines[:-1]) + "\n"


def default(field: Field, known: dict[str, int]) -> str:
    """A field's default as Python has it."""
    if field.kind in ("strings", "values"):
        return "None" if field.missing else "[]"
    if field.kind == "string":
        return "None"
    if field.type.name in ("bool", "_Bool"):
        return "True" if field.default == "true" else "False"
    value = known.get(field.default, field.default or "0")
    return f"{float(value)}" if field.type.name in ("float", "double") else f"{value}"


CTYPES = [
    "CFUNCTYPE",
    "POINTER",
    "Structure",
    "c_bool",
    "c_char",
    "c_char_p",
    "c_double",
    "c_float",
    "c_int32",
    "c_int64",
    "c_size_t",
    "c_uint32",
    "c_uint64",
    "c_void_p",
]


def signatures(exported: list[Header], generated: str) -> str:
    """Return the text of cowmlx/host/generated/declarations.py."""
    lines = ["NUL = c_size_t(-1).value", ""]
    for header in exported:
        for item in header.declarations:
            lines += declaration(item)
    structs = [
        d.name for h in exported for d in h.declarations if isinstance(d, Struct) and d.members
    ]
    lines += ["", "STRUCTS = {", *(f'    "{name}": {name},' for name in structs), "}", ""]
    lines += ["# The functions of cow_mlx_compat.h, which return no statuses.", "COMPAT = {"]
    lines += [f'    "{function.name}",' for h in exported[1:] for function in h.functions]
    lines += ["}", ""]
    lines += ["# name: (result, ((parameter, type), ...)); a result of None is void.", ""]
    lines.append("FUNCTIONS = {")
    for header in exported:
        for function in header.functions:
            lines += entry(function)
    body = re.sub(r"\n{4,}", "\n\n\n", "\n".join([*lines, "}"]))
    imports = [f"    {name}," for name in CTYPES if re.search(rf"\b{name}\b", body)]
    head = [
        f'"""{generated}"""',
        "",
        "# ruff: noqa: N801",
        "",
        "from ctypes import (",
        *imports,
        ")",
        "",
        "from cowmlx.generated.constants import (",
        *(f"    {name} as {name}," for name in ["DTYPES", *flags(exported[0])]),
        ")",
        "from cowmlx.generated.reasons import REASONS as REASONS",
        "from cowmlx.generated.status import *  # noqa: F403",
        "",
        "",
    ]
    return "\n".join(head) + body + "\n"


def declaration(item: Enum | Struct | Alias) -> list[str]:
    """One struct, callback or alias."""
    if isinstance(item, Enum):
        return []
    if isinstance(item, Alias):
        function = item.type.function
        return [f"{item.name} = {callback(function) if function else spell(item.type)}"]
    if item.members is None:
        return []
    members = [f'        ("{name}", {spell(type_)}),' for name, type_ in item.members]
    return [
        "",
        "",
        f"class {item.name}(Structure):",
        '    """As in the header."""',
        "",
        "    _fields_ = [",
        *members,
        "    ]",
        "",
        "",
    ]


def callback(signature: Signature) -> str:
    """A callback's type. Text with a length may hold NUL bytes: a pointer, then."""
    types = [type_ for _, type_ in signature.params]
    spelled = [spell(type_) for type_ in types]
    for index, following in enumerate(types[1:]):
        if spelled[index] == "c_char_p" and following.name == "size_t":
            spelled[index] = "POINTER(c_char)"
    return f"CFUNCTYPE({', '.join([spell(signature.result), *spelled])})"


def entry(function: Function) -> list[str]:
    """One function's line of the table."""
    signature = function.signature
    if not signature.params:
        return [f'    "{function.name}": ({spell(signature.result)}, ()),']
    params = [f'("{name}", {spell(type_)})' for name, type_ in signature.params]
    listed = ["        (", *(f"            {param}," for param in params), "        ),"]
    if len(params) == 1:
        listed = [f"        ({params[0]},),"]
    return [
        f'    "{function.name}": (',
        f"        {spell(signature.result)},",
        *listed,
        "    ),",
    ]


def spell(type_: Type) -> str:
    """A type in ctypes."""
    if type_.function:
        return callback(type_.function)
    stars = len(type_.pointers)
    if type_.name == "void" and not stars:
        return "None"
    if type_.name in ("void", *OPAQUE):
        inner, stars = "c_void_p", stars - 1
    elif type_.name == "char":
        inner, stars = ("c_char_p" if type_.const else "POINTER(c_char)"), stars - 1
    else:
        inner = BASE.get(type_.name, type_.name)
    return "POINTER(" * stars + inner + ")" * stars
