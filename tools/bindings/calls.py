"""What the public calls take and give: the roles of their parameters, from names, types and docs.

A call's C body, its typed arguments, and how the bridge reads and writes them follow from these.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tools.bindings.header import Alias, Function, Header, Struct, Type
from tools.bindings.header_comments import read as read_comments

PREFIX = "cow_mlx_"
# Calls with a policy of their own. csrc has their bodies.
BY_HAND = ("runtime_start", "runtime_stop", "error_details")
BY_HAND += ("context_cancel", "program_cancel", "training_cancel")
# They move data on the caller's thread (csrc/calls/array_calls.c).
BY_HAND += ("array_create", "array_read", "array_type", "array_view", "array_free")
BY_HAND += ("array_from_dlpack", "array_to_dlpack")
# They return at once (async_calls.c and taking_calls.c in csrc/calls).
BY_HAND += ("context_begin_async", "context_chat_async", "model_load_async")
BY_HAND += ("context_next_event", "model_poll", "model_wake_fd")
# They first take results that are ready (csrc/calls/taking_calls.c).
OWN_BODY = ("context_next", "context_poll", "context_wake_fd", "model_free")
# They move data, too (program_calls.c and training_calls.c in csrc/calls); the bridge reads their
# arguments like those of all other calls.
OWN_BODY += ("program_run", "training_step")
# Calls whose params cannot be NULL: the defaults alone are not enough.
NEEDING_PARAMS = ("training_fit", "training_evaluate")
# Params that calls copy which return at once.
COPIED_PARAMS = ("generation", "model")
# Their results are consumed, so that a NULL buffer is one that is too small, not a question.
CONSUMING = ("context_next",)
SCALARS = ("int32_t", "uint32_t", "int64_t", "uint64_t", "size_t", "float", "double", "bool")
ELEMENTS = ("char", "int32_t", "float", f"{PREFIX}array")  # of buffers


@dataclass(frozen=True)
class Role:
    """One or more parameters that belong together.

    Attributes:
        kind: "handle", "scalar", "string", "text", "tokens", "texts", "strings", "handles",
            "values", "params", "callback"; of outputs "buffers_out" (with one capacity),
            "handles_out" (as many as an input has), "value_out", "struct_out", "values_out".
        name: of the first parameter, and of the member of the typed arguments.
        names: of all parameters.
        type: of the first parameter; of a callback that of the function.
        nullable: whether NULL is accepted.
        buffers: the buffers of "buffers_out" and what they hold.
        count: the parameter that says how many there are, if it need not stand next to it.
    """

    kind: str
    name: str
    names: tuple[str, ...]
    type: Type
    nullable: bool = False
    buffers: tuple[tuple[str, Type], ...] = ()
    count: str = ""

    @property
    def is_output(self) -> bool:
        """Whether the call writes it."""
        return self.kind.endswith("_out")


@dataclass(frozen=True)
class Call:
    """A call that the dispatch thread carries out.

    Attributes:
        name: without "cow_mlx_"; of the engine's method, too.
    """

    name: str
    function: Function
    roles: tuple[Role, ...]

    @property
    def op(self) -> str:
        """Its operation."""
        return f"COW_OP_{self.name.upper()}"

    @property
    def inputs(self) -> list[Role]:
        """What the engine's method is given, in this order: also what results have to be."""
        return [
            role
            for role in self.roles
            if role.kind == "values_out" or not (role.is_output or role.kind == "callback")
        ]

    @property
    def outputs(self) -> list[Role]:
        """What the method's result is written to."""
        return [r for r in self.roles if r.is_output]

    @property
    def subject(self) -> tuple[str, str] | None:
        """The parameter that says on which context or training it is made, and what it is."""
        first = self.roles[0] if self.roles else None
        if first is None or first.kind != "handle":
            return None
        noun = first.type.name.removeprefix(PREFIX)
        return (noun, first.name) if noun in ("context", "training") else None


def read(public: Header) -> list[Call]:
    """The calls of a header that return a status, but those made by hand."""
    nullables = nullable_params(public)
    structs = {d.name for d in public.declarations if isinstance(d, Struct)}
    handles = {
        d.name
        for d in public.declarations
        if isinstance(d, Alias)
        and d.type in (Type("int32_t"), Type("int64_t"))
        and not d.name.endswith("_status")
    }
    callbacks = {d.name for d in public.declarations if isinstance(d, Alias) and d.type.function}
    calls = []
    for function in public.functions:
        name = function.name.removeprefix(PREFIX)
        if function.signature.result == Type("cow_mlx_status") and name not in BY_HAND:
            has_defaults = name not in NEEDING_PARAMS
            reader = Reader(structs, handles, callbacks, nullables[function.name], has_defaults)
            roles = reader.roles(function)
            calls.append(Call(name, function, tuple(roles)))
    return calls


def nullable_params(public: Header) -> dict[str, set[str]]:
    """The parameters of each function whose documentation speaks of NULL."""
    found: dict[str, set[str]] = {}
    for section in read_comments(public.path).sections:
        for entry in section.entries:
            if entry.kind == "function":
                params = entry.comment.params
                found[entry.names[0]] = {name for name, text in params if "NULL" in text}
    return found


class Reader:
    """Reads the roles of one function's parameters.

    Args:
        structs, handles, callbacks: names of types.
        nullable: parameters that may be NULL.
        has_defaults: whether params may be, too.
    """

    def __init__(
        self,
        structs: set[str],
        handles: set[str],
        callbacks: set[str],
        nullable: set[str],
        has_defaults: bool = True,
    ) -> None:
        self.structs = structs
        self.handles = handles
        self.callbacks = callbacks
        self.nullable = nullable
        self.has_defaults = has_defaults

    def roles(self, function: Function) -> list[Role]:
        """The roles in the order of the parameters."""
        rest = list(function.signature.params)
        roles: list[Role] = []
        while rest:
            if rest[0][0] in {role.count for role in roles}:
                del rest[0]
                continue
            role = self._next(rest)
            if role is None:
                raise ValueError(f"{function.name}: no role for {rest[0][0]} is known")
            roles.append(role)
            del rest[: len(role.names)]
        return roles

    def _next(self, rest: list[tuple[str, Type]]) -> Role | None:
        name, type_ = rest[0]
        names = [other for other, _ in rest]
        nullable = name in self.nullable
        if many := self._many(name, type_):
            return many
        if not type_.pointers:
            return self._value(name, type_, names)
        if len(type_.pointers) > 1:
            return None
        if type_.const:
            return self._input(name, type_, names, nullable)
        if count := buffers_of(rest):
            buffers = tuple(rest[:count])
            return Role("buffers_out", name, tuple(names[: count + 2]), type_, buffers=buffers)
        if type_.name == f"{PREFIX}value":
            return Role("values_out", name, tuple(names[:2]), type_)
        if type_.name in self.structs:
            return Role("struct_out", name, (name,), type_, nullable)
        if type_.name in (*SCALARS, *self.handles):
            return Role("value_out", name, (name,), type_)
        return None

    def _many(self, name: str, type_: Type) -> Role | None:
        """Texts or arrays that share a parameter "count"."""
        if type_ == Type("char", ("* const", "*"), True) and name == "names":
            return Role("strings", name, (name,), type_, count="count")
        if type_.name == f"{PREFIX}array" and type_.pointers:
            if type_.const:
                return Role("handles", name, (name,), type_, count="count")
            if name == "arrays":
                return Role("handles_out", name, (name,), type_, count="count")
        return None

    def _value(self, name: str, type_: Type, names: list[str]) -> Role | None:
        if type_.name in self.handles:
            return Role("handle", name, (name,), type_)
        if type_.name in self.callbacks and names[1:2] == ["user_data"]:
            return Role("callback", name, (name, "user_data"), type_, True)
        return Role("scalar", name, (name,), type_) if type_.name in SCALARS else None

    def _input(self, name: str, type_: Type, names: list[str], nullable: bool) -> Role | None:
        if name == "params" and type_.name in self.structs:
            return Role("params", name, (name,), type_, self.has_defaults)
        counted = names[1:2] in (["length"], ["count"])
        kinds = {"char": "text", "int32_t": "tokens", f"{PREFIX}text": "texts"}
        kinds[f"{PREFIX}value"] = "values"
        if counted and type_.name in kinds:
            kind = kinds[type_.name]
            return Role(kind, name, (name, names[1]), type_, nullable or kind == "texts")
        return Role("string", name, (name,), type_, nullable) if type_.name == "char" else None


def buffers_of(rest: list[tuple[str, Type]]) -> int:
    """How many buffers stand before a capacity and a size; 0 if it is no such group."""
    for index, (name, type_) in enumerate(rest[:-1]):
        if name == "capacity":
            return index if rest[index + 1][1] == Type("size_t", ("*",)) else 0
        if type_.const or type_.pointers != ("*",) or type_.name not in ELEMENTS:
            return 0
    return 0


# ------------------------------------------------------------------ Structs of parameters


@dataclass(frozen=True)
class Field:
    """A member of a params struct that the engine gets.

    Attributes:
        kind: "scalar", "string", "strings", "values".
        missing: whether NULL and no strings at all differ.
        count: the member that says how many there are, of "strings" and "values".
        default: as C has it; "" for 0 or NULL.
    """

    kind: str
    name: str
    type: Type
    count: str = ""
    default: str = ""
    missing: bool = False


def params_structs(public: Header) -> dict[str, list[Field]]:
    """The fields of every params struct, by its noun."""
    texts = {
        entry.names[0]: {name: text for name, _, text in entry.rows}
        for section in read_comments(public.path).sections
        for entry in section.entries
        if entry.kind == "struct"
    }
    callbacks = {d.name for d in public.declarations if isinstance(d, Alias) and d.type.function}
    enumerators = [name for enum in public.enums() for name in enum.values]
    found = {}
    for struct in public.declarations:
        if isinstance(struct, Struct) and struct.name.endswith("_params") and struct.members:
            noun = struct.name.removeprefix(PREFIX).removesuffix("_params")
            said = texts[struct.name]
            found[noun] = [
                field
                for name, type_ in struct.members
                if (field := field_of(struct, name, type_, callbacks))
            ]
            found[noun] = [
                replace(
                    f,
                    default=default_of(said[f.name], enumerators),
                    missing=f.kind == "strings" and "NULL (default)" in said[f.name],
                )
                for f in found[noun]
            ]
    return found


def params_callbacks(public: Header) -> dict[str, list[tuple[str, str]]]:
    """The callbacks in every params struct, by its type: what each is told, and the member."""
    callbacks = {d.name for d in public.declarations if isinstance(d, Alias) and d.type.function}
    return {
        struct.name: [
            (type_.name.removeprefix(PREFIX).removesuffix("_fn"), name)
            for name, type_ in struct.members or ()
            if type_.name in callbacks
        ]
        for struct in public.declarations
        if isinstance(struct, Struct)
    }


def field_of(struct: Struct, name: str, type_: Type, callbacks: set[str]) -> Field | None:
    """One member; None for what C keeps to itself: sizes, counts and callbacks."""
    members = [member for member, _ in struct.members or ()]
    counts = {member for member in members if member.endswith("_count")}
    if name == "struct_size" or name in counts or type_.name in callbacks or "user_data" in name:
        return None
    count = next((c for c in counts if name.startswith(c.removesuffix("_count"))), "")
    if not type_.pointers:
        return Field("scalar", name, type_)
    if type_.name == "char" and len(type_.pointers) == 1:
        return Field("string", name, type_)
    if type_.name == "char" and count:
        return Field("strings", name, type_, count)
    if count and len(type_.pointers) == 1:
        return Field("values", name, type_, count)
    raise ValueError(f"{struct.name}: no kind of field for {name} is known")


def default_of(text: str, enumerators: list[str]) -> str:
    """The default that a member's comment tells, as "default X" or "X (default)"; "" for 0."""
    found = re.search(r"(\S+) \(default\)", text)
    found = found or re.search(r"\bdefault (\d+\.\d+|\w+(?: MiB)?)", text)
    word = found[1] if found else ""
    if word in ("", "0", "NULL", "none"):
        return ""
    if word.endswith(" MiB"):
        return f"{int(word.removesuffix(' MiB')) << 20}"
    if word in ("true", "false") or re.fullmatch(r"-?\d+(\.\d+)?", word):
        return word
    named = [name for name in enumerators if name.endswith(f"_{word}")]
    prefix = re.search(r"\bone of (COW_MLX_\w+_)", text)
    named = [name for name in named if not prefix or name == prefix[1] + word]
    if len(named) != 1:
        raise ValueError(f"the default {word!r} in {text!r} is not read here")
    return named[0]
