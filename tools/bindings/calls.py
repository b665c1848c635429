"""What the public calls take and give: the roles of their parameters, from names and types.

A call's C body, its typed arguments, and how the bridge reads and writes them follow from these.
"""

from __future__ import annotations

from dataclasses import dataclass

from tools.bindings.call_table import Is
from tools.bindings.call_table import of as properties_of
from tools.bindings.header import Alias, Function, Header, Struct, Type

PREFIX = "cow_mlx_"
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
    """A call whose parameters have roles.

    Attributes:
        name: without "cow_mlx_"; of the engine's method, too.
    """

    name: str
    function: Function
    roles: tuple[Role, ...]

    @property
    def properties(self) -> Is:
        """Its row of the table of calls."""
        return properties_of(self.name)

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
    """The calls of a header that return a status and whose parameters have roles."""
    reader = Reader(public)
    return [
        Call(name, function, tuple(reader.roles(function)))
        for function in public.functions
        if function.signature.result == Type("cow_mlx_status")
        and Is.NO_ROLES not in properties_of(name := function.name.removeprefix(PREFIX))
    ]


def handle_types(public: Header) -> dict[str, str]:
    """The types of handles, and the number that each is."""
    return {
        d.name: d.type.name
        for d in public.declarations
        if isinstance(d, Alias) and not d.type.function and not d.name.endswith("_status")
    }


def callback_types(public: Header) -> list[Alias]:
    """The types of callbacks."""
    return [d for d in public.declarations if isinstance(d, Alias) and d.type.function]


class Reader:
    """Reads the roles of the parameters of functions.

    Args:
        public: the header that declares their types.
    """

    def __init__(self, public: Header) -> None:
        self.structs = {d.name for d in public.declarations if isinstance(d, Struct)}
        self.handles = set(handle_types(public))
        self.callbacks = {alias.name for alias in callback_types(public)}

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
        if many := self._many(name, type_):
            return many
        if not type_.pointers:
            return self._value(name, type_, names)
        if len(type_.pointers) > 1:
            return None
        if type_.const:
            return self._input(name, type_, names)
        if count := buffers_of(rest):
            buffers = tuple(rest[:count])
            return Role("buffers_out", name, tuple(names[: count + 2]), type_, buffers=buffers)
        if type_.name == f"{PREFIX}value":
            return Role("values_out", name, tuple(names[:2]), type_)
        if type_.name in self.structs:
            return Role("struct_out", name, (name,), type_, type_.nullable)
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

    def _input(self, name: str, type_: Type, names: list[str]) -> Role | None:
        if name == "params" and type_.name in self.structs:
            return Role("params", name, (name,), type_, type_.nullable)
        counted = names[1:2] in (["length"], ["count"]) or names[1:2] == [f"{name[:-1]}_count"]
        kinds = {"char": "text", "int32_t": "tokens", f"{PREFIX}text": "texts"}
        kinds[f"{PREFIX}value"] = "values"
        if counted and type_.name in kinds:
            kind = kinds[type_.name]
            return Role(kind, name, (name, names[1]), type_, type_.nullable)
        if type_.name != "char":
            return None
        return Role("string", name, (name,), type_, type_.nullable)


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
        missing: whether NULL, the default, differs from no strings.
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
    callbacks = {alias.name for alias in callback_types(public)}
    return {
        struct.name.removeprefix(PREFIX).removesuffix("_params"): [
            field
            for name, type_ in struct.members
            if (field := field_of(struct, name, type_, callbacks))
        ]
        for struct in public.declarations
        if isinstance(struct, Struct) and struct.name.endswith("_params") and struct.members
    }


def params_callbacks(public: Header) -> dict[str, list[tuple[str, str]]]:
    """The callbacks in every params struct, by its type: the kind of event, and the member."""
    callbacks = {alias.name for alias in callback_types(public)}
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
    default = struct.defaults.get(name, "")
    if not type_.pointers:
        return Field("scalar", name, type_, default=default)
    if type_.name == "char" and len(type_.pointers) == 1:
        return Field("string", name, type_)
    if type_.name == "char" and count:
        return Field("strings", name, type_, count, missing=default == "NULL")
    if count and len(type_.pointers) == 1:
        return Field("values", name, type_, count)
    raise ValueError(f"{struct.name}: no kind of field for {name} is known")
