"""What bindings for managed languages need of the header: layouts, enumerations and calls.

They write structs into plain memory, so they have to know where each member lies. All platforms of
the library have 64 bits and align members to their size.
"""

from __future__ import annotations

from dataclasses import dataclass

from tools.bindings.calls import PREFIX, callback_types, handle_types
from tools.bindings.header import Alias, Header, Struct, Type
from tools.bindings.header_comments import read as read_comments

SIZES = {"bool": 1, "_Bool": 1, "int32_t": 4, "uint32_t": 4, "float": 4}
SIZES |= {"size_t": 8, "int64_t": 8, "uint64_t": 8, "double": 8}
POINTER = 8

MACROS = "COW_MLX_"


@dataclass(frozen=True)
class Member:
    """A member of a struct.

    Attributes:
        type: of what it is or points at, aliases of numbers resolved; of a callback its own.
        kind: "scalar"; "string"; "strings" and "array", with ``count``; "callback"; "pointer".
        offset: in bytes.
        count: the member that says how many there are.
        enumeration: the list of constants that it is one of, or "".
        noun: of a handle, or of handles, what they are; or "".
        about: what the header says of it.
    """

    name: str
    type: str
    kind: str
    offset: int
    count: str = ""
    enumeration: str = ""
    noun: str = ""
    about: str = ""


@dataclass(frozen=True)
class Layout:
    """A struct as it lies in memory; ``name`` without "cow_mlx_"."""

    name: str
    size: int
    members: tuple[Member, ...]


# The types that bindings make of groups of constants, and what they say of them.
ENUMS = {
    "LOG": ("LogLevel", "Levels of log messages, from the rarest to the most frequent."),
    "ACTIVATIONS": ("Activations", "Activations of quantized layers on CPUs."),
    "SPLIT": ("Split", "Ways to split a model over machines."),
    "QUANTIZE": ("QuantizedFormat", "Formats of quantized weights."),
    "OVERFLOW": ("Overflow", "What happens when a context is full."),
    "GRAMMAR": ("GrammarKind", "Kinds of grammars."),
    "FINISH": ("Finish", "Why a generation has ended."),
    "EVENT": ("EventKind", "Kinds of the events of a chat."),
    "POOLING": ("Pooling", "Ways from the vectors of tokens to one of a text."),
    "TRAINING": ("TrainingEventKind", "Kinds of the events of a training."),
    "FIT": ("FitEnd", "Why a fit has ended."),
}
TYPES_OF_ENUMS = {group: name for group, (name, _) in ENUMS.items()}


def handle_members(public: Header) -> set[str]:
    """The names of members of structs that are one handle."""
    handles = set(handle_types(public))
    structs = [d for d in public.declarations if isinstance(d, Struct)]
    members = [member for struct in structs for member in struct.members or ()]
    return {name for name, type_ in members if type_.name in handles and not type_.pointers}


def resolved(name: str, public: Header) -> str:
    """A number's own type, where ``name`` is an alias of it."""
    alias = next((d for d in public.declarations if isinstance(d, Alias) and d.name == name), None)
    return alias.type.name if alias and not alias.type.function else name.replace("_Bool", "bool")


def layouts(public: Header) -> list[Layout]:
    """The structs of the header, each with its members' places."""
    said = {
        entry.names[0]: {name: text for name, _, text in entry.rows}
        for section in read_comments(public.path).sections
        for entry in section.entries
        if entry.kind == "struct"
    }
    return [
        layout_of(struct, said.get(struct.name, {}), public)
        for struct in public.declarations
        if isinstance(struct, Struct) and struct.members
    ]


def layout_of(struct: Struct, said: dict[str, str], public: Header) -> Layout:
    """Where the members of one struct lie."""
    callbacks = {alias.name for alias in callback_types(public)}
    handles = handle_types(public)
    counts = [name for name, _ in struct.members or () if name.endswith("_count")]
    groups = enumerations(public)
    members, offset, alignment = [], 0, 1
    for name, type_ in struct.members or ():
        own = resolved(type_.name, public)
        is_pointer = bool(type_.pointers) or own in callbacks
        size = POINTER if is_pointer else SIZES[own]
        offset = -(-offset // size) * size
        kind, count = kind_of(name, type_, counts, own in callbacks)
        named = name.removesuffix("_level").removesuffix("_kind").upper()
        group = struct.one_of.get(name, named)
        enumeration = group if group in groups and not is_pointer else ""
        noun = type_.name.removeprefix(PREFIX) if type_.name in handles else ""
        about = said.get(name, "")
        members.append(Member(name, own, kind, offset, count, enumeration, noun, about))
        offset += size
        alignment = max(alignment, size)
    name = struct.name.removeprefix(PREFIX)
    return Layout(name, -(-offset // alignment) * alignment, tuple(members))


def kind_of(name: str, type_: Type, counts: list[str], is_callback: bool) -> tuple[str, str]:
    """What a member is, and the member that counts it."""
    if is_callback:
        return "callback", ""
    if not type_.pointers:
        return "scalar", ""
    count = next((c for c in counts if name.startswith(c.removesuffix("_count"))), "")
    if type_.name == "char":
        return ("strings", count) if len(type_.pointers) > 1 else ("string", "")
    return ("array", count) if count else ("pointer", "")


def enumerations(public: Header) -> dict[str, dict[str, int]]:
    """The lists of constants by what their names begin with; "FLAGS" are those of no such name."""
    known = {MACROS + name for name in (*public.statuses, *public.dtypes)}
    groups = {}
    for enum in public.enums():
        if not known.isdisjoint(enum.values):
            continue
        first, *others = enum.values
        words = first.split("_")
        shared = [
            word
            for at, word in enumerate(words)
            if all(other.split("_")[: at + 1] == words[: at + 1] for other in others)
        ]
        prefix = "_".join(shared) + "_"
        group = prefix.removeprefix(MACROS).rstrip("_") or "FLAGS"
        groups[group] = {name.removeprefix(prefix): value for name, value in enum.values.items()}
    return groups


def element(type_: Type, public: Header) -> str:
    """What a pointer points at: "char", a number's type, or a struct's name."""
    return resolved(type_.name, public).removeprefix(PREFIX)


def pascal(name: str) -> str:
    """Write a name of C as types are called: GenerationParams."""
    return "".join(part.capitalize() for part in name.split("_"))


def camel(name: str) -> str:
    """Write a name of C as methods are called: maxTokens."""
    first, *others = name.lower().split("_")
    return first + "".join(part.capitalize() for part in others)
