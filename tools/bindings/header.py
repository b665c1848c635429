"""Reads the C headers: what the generated files are made of."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from pycparser import c_ast, c_generator, c_parser

PRELUDE = """
typedef unsigned long size_t; typedef _Bool bool;
typedef int int32_t; typedef unsigned int uint32_t;
typedef long int64_t; typedef unsigned long uint64_t;
"""
# Annotations become syntax that pycparser keeps: a qualifier, and the width of a bit-field.
ANNOTATIONS = {
    "#define COW_MLX_NULLABLE": "restrict",
    "#define COW_MLX_DEFAULT(value)": ": value",
    "#define COW_MLX_ONE_OF(NAME)": ": ONE_OF(NAME)",
}


INCLUDE = re.compile(r'^#include "(cow_mlx/\w+\.h)"\n', re.M)
# Include guards, and parts for C++ compilers.
FRAME = re.compile(
    r"\A/\*(?:(?!\*/).)*\*/\s*"  # what the part is about
    r"#ifndef (\w+_H)\n#define \1\n|#endif /\* \w+_H \*/\n|"
    r'#ifdef __cplusplus\n(?:extern "C" \{|\})\n#endif\n|^#include ["<][^\n]*\n',
    re.M | re.S,
)


@dataclass(frozen=True)
class Type:
    """A type as the emitters see it: a name, its constness and its stars.

    Attributes:
        name: a base type, or the name of a struct, enum or typedef.
        pointers: "*" or "* const" for each pointer to it, the innermost first.
        const: whether what the innermost pointer points to is const.
        function: the signature, where the type is an unnamed function pointer.
        nullable: of a parameter, whether it may be NULL.
    """

    name: str
    pointers: tuple[str, ...] = ()
    const: bool = False
    function: Signature | None = None
    nullable: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Signature:
    """Result and parameters of a function or of a function pointer."""

    result: Type
    params: tuple[tuple[str, Type], ...]


@dataclass(frozen=True)
class Function:
    """An exported function; ``summary`` is the first sentence of its comment."""

    name: str
    signature: Signature
    summary: str


@dataclass
class Enum:
    """Enumerators in order; ``name`` is empty for a list of constants."""

    name: str
    values: dict[str, int]


@dataclass
class Struct:
    """A struct.

    Attributes:
        members: names and types in order; None for a forward declaration.
        defaults: by the member's name, the value in C that its _init function sets.
        one_of: by the member's name, the list of constants that it is one of.
    """

    name: str
    members: tuple[tuple[str, Type], ...] | None
    is_typedef: bool
    defaults: dict[str, str] = field(default_factory=dict)
    one_of: dict[str, str] = field(default_factory=dict)


@dataclass
class Alias:
    """A typedef of a base type or of a function pointer."""

    name: str
    type: Type


@dataclass
class Header:
    """What one header file declares, in its order."""

    path: Path
    declarations: list[Enum | Struct | Alias] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    macros: dict[str, int | str] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, list[str]] = field(default_factory=dict)  # the keys of their details
    dtypes: dict[str, tuple[int, int]] = field(default_factory=dict)  # values and bytes

    def enums(self) -> list[Enum]:
        """The enums, those without a name included."""
        return [d for d in self.declarations if isinstance(d, Enum)]


def read_headers(paths: list[Path], texts: dict[Path, str] | None = None) -> list[Header]:
    """Parse headers that build on each other, in that order; ``texts`` of those not on disk."""
    headers = {str(path): Header(path) for path in paths}
    summaries: dict[str, dict[str, str]] = {}
    source = PRELUDE
    for path in paths:
        text = texts[path] if texts and path in texts else text_of(path)
        read_macros(headers[str(path)], text)
        summaries[str(path)] = summaries_of(text)
        text = re.sub(r"^#include.*$", "", text, flags=re.M)
        for macro, syntax in ANNOTATIONS.items():
            text = text.replace(f"{macro}\n", f"{macro} {syntax}\n")
        source += f'#line 1 "{path}"\n{text}\n'
    command = ["cc", "-E", "-x", "c", "-U__GNUC__", "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=True)
    for node in c_parser.CParser().parse(done.stdout).ext:
        header = headers.get(node.coord.file)
        if header:
            read_declaration(header, node, summaries[node.coord.file])
    return list(headers.values())


def read_macros(header: Header, text: str) -> None:
    """Read the statuses, the reasons, the dtypes, and macros that are a number or a text."""
    for name, value in re.findall(r"^#define (COW_\w+) (\d+|\"[^\"]*\")$", text, flags=re.M):
        header.macros[name] = value[1:-1] if value[0] == '"' else int(value)
    header.statuses = {
        name: int(value)
        for name, value in re.findall(r"X\((\w+), (-?\d+),", listed("STATUSES", text))
    }
    header.reasons = {
        name: keys.split(", ") if keys else []
        for name, keys in re.findall(r"X\((\w+), \"([^\"]*)\",", listed("REASONS", text))
    }
    header.dtypes = {
        name: (int(value), int(size))
        for name, value, size in re.findall(r"X\((\w+), (\d+), (\d+)\)", listed("DTYPES", text))
    }


def listed(name: str, text: str) -> str:
    """What the list of that name lists."""
    match = re.search(rf"#define COW_MLX_{name}\(X\)((?:.*\\\n)*.*)", text)
    return match.group(1) if match else ""


def read_declaration(header: Header, node: c_ast.Node, summaries: dict[str, str]) -> None:
    """Add one top-level declaration to the header."""
    inner = node.type
    if isinstance(inner, c_ast.FuncDecl):
        summary = summaries.get(node.name, "")
        header.functions.append(Function(node.name, signature_of(inner), summary))
        return
    is_typedef = isinstance(node, c_ast.Typedef)
    if is_typedef and isinstance(inner, c_ast.TypeDecl):
        inner = inner.type
    if isinstance(inner, c_ast.Enum):
        header.declarations.append(Enum(inner.name or "", values_of(inner)))
    elif isinstance(inner, c_ast.Struct):
        header.declarations.append(struct_of(inner, is_typedef))
    else:
        header.declarations.append(Alias(node.name, type_of(node.type)))


def struct_of(node: c_ast.Struct, is_typedef: bool) -> Struct:
    """A struct with what its members are annotated with."""
    if not node.decls:
        return Struct(node.name, None, is_typedef)
    struct = Struct(node.name, tuple((m.name, type_of(m.type)) for m in node.decls), is_typedef)
    for member in node.decls:
        if isinstance(member.bitsize, c_ast.FuncCall):
            struct.one_of[member.name] = member.bitsize.args.exprs[0].name
        elif member.bitsize is not None:
            struct.defaults[member.name] = constant_of(member.bitsize)
    return struct


def constant_of(node: c_ast.Node) -> str:
    """A constant as C writes it, shifts carried out."""
    if isinstance(node, c_ast.BinaryOp) and node.op == "<<":
        return str(integer_of(node.left) << integer_of(node.right))
    return str(c_generator.CGenerator().visit(node))


def values_of(enum: c_ast.Enum) -> dict[str, int]:
    """The values of an enum's enumerators, counted up where none is given."""
    values: dict[str, int] = {}
    following = 0
    for enumerator in enum.values.enumerators:
        if enumerator.value is not None:
            following = integer_of(enumerator.value)
        values[enumerator.name] = following
        following += 1
    return values


def integer_of(node: c_ast.Node) -> int:
    """The value of an integer constant with an optional sign."""
    if isinstance(node, c_ast.UnaryOp) and node.op == "-":
        return -integer_of(node.expr)
    if isinstance(node, c_ast.Constant):
        return int(node.value, 0)
    raise ValueError(f"{node.coord}: only plain integers are read here")


def type_of(node: c_ast.Node) -> Type:
    """The type of a declaration."""
    pointers: tuple[str, ...] = ()
    nullable = "restrict" in getattr(node, "quals", ())
    while isinstance(node, c_ast.PtrDecl):
        if isinstance(node.type, c_ast.FuncDecl):
            return Type("", function=signature_of(node.type))
        pointers = ("* const" if "const" in node.quals else "*", *pointers)
        node = node.type
    if not isinstance(node, c_ast.TypeDecl):
        raise ValueError(f"{node.coord}: {type(node).__name__} is not read here")
    base = node.type
    name = base.name if isinstance(base, c_ast.Struct | c_ast.Enum) else " ".join(base.names)
    return Type(name, pointers, "const" in node.quals, nullable=nullable)


def signature_of(node: c_ast.FuncDecl) -> Signature:
    """The signature of a function."""
    params = tuple((p.name or "", type_of(p.type)) for p in node.args.params)
    if params == (("", Type("void")),):
        params = ()
    return Signature(type_of(node.type), params)


def summaries_of(text: str) -> dict[str, str]:
    """The first sentences of the comments above functions, by the functions' names."""
    commented = r"/\*\*((?:(?!\*/).)*)\*/\s*COW_MLX_API [^;/]*?\b(\w+)\("
    return {
        match[2]: first_sentence(match[1]) for match in re.finditer(commented, text, flags=re.S)
    }


def first_sentence(comment: str) -> str:
    """The first sentence of a comment in C, or its only paragraph."""
    lines = [line.strip().removeprefix("*").strip() for line in comment.splitlines()]
    paragraph = " ".join(lines).strip()
    sentence = re.match(r".*?[.;:](?=\s|$)", paragraph)
    return sentence.group(0).rstrip(";:.") + "." if sentence else paragraph


def text_of(path: Path) -> str:
    """The text of a header, its parts in the place of their includes."""
    return INCLUDE.sub(lambda found: part(path.parent / found[1]), path.read_text())


def part(path: Path) -> str:
    """What a part declares."""
    return FRAME.sub("", path.read_text()).strip() + "\n\n"
