"""Writes the Swift of the package that repeats the header: enums, options, names and reasons.

Members of params that have another type in Swift are lowered by hand, in
bindings/swift/Sources/CowMLX/Lowering.swift.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tools.bindings import emit_params, hosts, own_names
from tools.bindings.calls import PREFIX, Field
from tools.bindings.header import Header
from tools.bindings.header_comments import constant_texts
from tools.bindings.header_comments import read as read_comments
from tools.bindings.hosts import Layout, Member, camel

KEYWORDS = {
    "default",
    "internal",
    "repeat",
    "where",
    "in",
    "is",
    "as",
    "var",
    "operator",
    "extension",
}
# The enums, by the constants' name; flags and kinds of grammars are written by hand.
ENUMS = {group: pair for group, pair in hosts.ENUMS.items() if group != "GRAMMAR"}
ENUMS["EVENT"] = ("ChatEventKind", hosts.ENUMS["EVENT"][1])
INTERNAL = ("ChatEventKind",)
NUMBERS = {"bool": "Bool", "_Bool": "Bool", "float": "Float", "double": "Double"}


@dataclass(frozen=True)
class Own:
    """What a struct has beside the generated members.

    Attributes:
        about: what the struct is.
        members: types, defaults and comments by name, of members that are not C's.
        left_out: fields of C that these stand for, or that are parameters of calls.
    """

    about: str
    members: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


PARAMS = {
    "runtime": Own("Options of the runtime.", left_out=("log",)),
    "model": Own("Options of a load.", left_out=("progress",)),
    "context": Own("Options of a context."),
    "generation": Own(
        "Options of a generation. Sampling follows mlx-lm; the manual has the order.",
        {
            "bias": (
                "[Int32: Float]",
                "[:]",
                "Added to the logits of tokens, by token; "
                "`-.infinity` forbids one, unless a grammar allows no other.",
            ),
            "grammar": (
                "Grammar?",
                "nil",
                "The grammar of the output; in a chat it applies after the model's thinking.",
            ),
            "draft": ("Model?", "nil", "A draft model: a smaller model with the same vocabulary."),
        },
        (
            *("bias_tokens", "bias_values", "grammar", "grammar_kind", "draft"),
            *("prompt_progress", "logits_fn"),
        ),
    ),
    "embed": Own("Options of embeddings."),
    "rank": Own("Options of a ranking."),
    "program": Own("Options of a program."),
    "run": Own("Options of a run of a program.", left_out=("submit", "donate")),
    "training": Own(
        "Options of a training.",
        {"initial": ("[String: NDArray]", "[:]", "Parameters that begin as arrays, by name.")},
        ("initial_names", "initial_arrays"),
    ),
    "fit": Own(
        "Data, and the end of a fit: steps or epochs must be set, unless batches end.",
        {
            "inputs": (
                "[NDArray]",
                "[]",
                "The data: one array for each input of the program, in "
                "their order, whose first axis is that of the rows.",
            ),
            "validation": ("[NDArray]", "[]", "Data like the inputs, to evaluate on."),
        },
        ("inputs", "validation", "next_batch"),
    ),
}
# Structs that C fills, as values of Swift.
RECORDS = {
    "stats": ("GenerationStats", "Sizes and times of one generation."),
    "training_event": (
        "TrainingEvent",
        "An event of a training. Numbers that an event does not "
        "have are 0, or NaN if they are not whole numbers.",
    ),
}


def files(public: Header, params: dict[str, list[Field]], generated: str) -> dict[str, str]:
    """The text of each file, by its name."""
    head = f"// {generated}\n// swift-format-ignore-file\n\n"
    return {
        "Enums.swift": head + enums(public),
        "Names.swift": head + names(public),
        "Params.swift": head + all_params(public, params),
        "Reasons.swift": head + reasons(public),
        "Records.swift": head + records(public),
    }


def safe(name: str) -> str:
    """A name where a keyword needs quotation."""
    return f"`{name}`" if name in KEYWORDS else name


def doc(text: str, indent: str = "") -> Iterable[str]:
    """A comment for DocC."""
    for line in textwrap.wrap(
        text, 94 - len(indent), break_long_words=False, break_on_hyphens=False
    ):
        yield f"{indent}/// {line}"


def said(about: str, public: Header) -> str:
    """A comment of the header with Swift's names."""
    calls, known = own_names.calls(own_names.SWIFT, public), own_names.fields(public)
    text = emit_params.plain(about)
    text = re.sub(r"one of COW_MLX_(\w+)_", lambda m: f"one of ``{ENUMS[m[1]][0]}``", text)
    text = re.sub(r"`?cow_mlx_(\w+)\(\)`?", lambda m: f"`{calls.get(m[1], m[1])}`", text)
    text = text.replace("SIZE_MAX", "`Int.max`")
    text = re.sub(r"COW_MLX_[A-Z]+_([A-Z]+)", lambda m: f"`{camel(m[1])}`", text)
    text = re.sub(
        r"(?<![\w`./])(\w+_\w+)(?![\w`/])",
        lambda m: f"`{camel(m[1])}`" if m[1] in known else m[0],
        text,
    )
    return f"{text[:1].upper()}{text[1:]}".rstrip(".") + "." if text else ""


# ---------------------------------------------------------------------------------- Enums


def enums(public: Header) -> str:
    """The enums, and the types of elements."""
    about = constant_texts(public.path)
    lines: list[str] = []
    for group, values in hosts.enumerations(public).items():
        if group in ENUMS:
            name, what = ENUMS[group]
            access = "" if name in INTERNAL else "public "
            lines += [
                *doc(what),
                f"{access}enum {name}: Int32, Sendable, Hashable, CaseIterable {{",
            ]
            for each, value in without_none(values).items():
                lines += doc(
                    said(about.get(f"COW_MLX_{group}_{each}") or f"`{each}`", public), "  "
                )
                lines += [f"  case {safe(camel(each))} = {value}"]
            lines += ["}", ""]
    lines += [
        "/// Types of elements.",
        "public enum DType: Int32, Sendable, Hashable, CaseIterable {",
    ]
    for name, (value, size) in public.dtypes.items():
        lines += doc(f"{size} byte{'s' * (size > 1)}.", "  ")
        lines += [f"  case {camel(name)} = {value}"]
    lines += ["", "  /// Bytes of an element.", "  public var size: Int {", "    switch self {"]
    for size in sorted({size for _, size in public.dtypes.values()}):
        cases = ", ".join(f".{camel(n)}" for n, (_, s) in public.dtypes.items() if s == size)
        lines += [f"    case {cases}: {size}"]
    lines += ["    }", "  }", ""]
    lines += ['  /// The name in programs and files, such as `"float32"`.']
    lines += ["  public var name: String { String(describing: self) }", ""]
    lines += ["  /// The type with this name, if there is one."]
    lines += ["  public init?(name: String) {"]
    lines += [
        "    guard let found = Self.allCases.first(where: { $0.name == name }) else { return nil }"
    ]
    lines += ["    self = found", "  }", "}", ""]
    lines += ["extension NDArray {", "  /// The most dimensions of an array."]
    lines += [f"  public static let maxRank = {public.macros['COW_MLX_MAX_RANK']}", "}", ""]
    return "\n".join(lines)


def without_none(values: Mapping[str, int]) -> dict[str, int]:
    """The values of an enum; NONE is nil in Swift."""
    return {name: value for name, value in values.items() if name != "NONE"}


def reasons(public: Header) -> str:
    """The known reasons of failures."""
    about = {
        name: text
        for section in read_comments(public.path).sections
        for entry in section.entries
        if entry.comment.paragraphs[:1] == ["Reasons."]
        for name, _, text in entry.rows
    }
    lines = ["extension CowMLXError.Reason {"]
    for index, name in enumerate(public.reasons):
        text = about[name]
        lines += [""] * bool(index)
        lines += doc(f"{text[:1].upper()}{text[1:]}.", "  ")
        lines += [f'  public static let {safe(camel(name))} = Self(rawValue: "{name}")']
    return "\n".join([*lines, "}", ""])


def names(public: Header) -> str:
    """The names of calls, fields, parameters and constants, for messages."""
    fields = own_names.fields(public)
    constants = {
        f"{hosts.MACROS}{group}_{name}": f"{ENUMS[group][0]}.{camel(name)}"
        for group, values in hosts.enumerations(public).items()
        if group in ENUMS
        for name in without_none(values)
    }
    parameters = [name for name in own_names.parameters(public) if name not in fields]
    tables = {
        "calls": ("What each call of C is here.", own_names.calls(own_names.SWIFT, public)),
        "fields": ("What the fields of params are.", {name: camel(name) for name in fields}),
        "parameters": ("What parameters are.", {name: camel(name) for name in parameters}),
        "constants": ("What constants are.", constants),
    }
    lines = ["/// Names of C and those of this package, for messages.", "enum Names {"]
    for index, (name, (about, entries)) in enumerate(tables.items()):
        lines += [""] * bool(index)
        lines += [f"  /// {about}", f"  static let {name}: [String: String] = ["]
        lines += [f'    "{key}": "{value}",' for key, value in entries.items()]
        lines += ["  ]"]
    return "\n".join([*lines, "}", ""])


# --------------------------------------------------------------------------------- Params


def all_params(public: Header, params: dict[str, list[Field]]) -> str:
    """The structs of options."""
    lines = ["import CCowMLX", ""]
    for noun, layout in emit_params.nouns(public):
        fields = {each.name: each for each in params[noun]}
        own = PARAMS[noun]
        members = [m for m in emit_params.fields(layout) if m.name not in own.left_out]
        lines += one_params(noun, own, members, fields, public)
    return "\n".join(lines)


def type_of(member: Member) -> str:
    """The type of a member."""
    if member.kind == "string":
        return "String?"
    if member.kind == "strings":
        return "[String]?" if member.name == "dry_sequence_breakers" else "[String]"
    if member.kind != "scalar" or member.noun:
        raise ValueError(f"{member.name}: write it by hand, and name it in PARAMS")
    if member.enumeration:
        return ENUMS[member.enumeration][0]
    return NUMBERS.get(member.type) or ("UInt64" if member.name == "seed" else "Int")


def default_of(member: Member, fields: Mapping[str, Field], public: Header) -> str:
    """The default, which the header tells."""
    given = fields[member.name].default if member.name in fields else ""
    if type_of(member).endswith("?"):
        return "nil"
    if member.kind == "strings":
        return "[]"
    if member.enumeration:
        values = hosts.enumerations(public)[member.enumeration]
        wanted = given.removeprefix(f"{hosts.MACROS}{member.enumeration}_")
        name = wanted or next(name for name, value in values.items() if value == 0)
        return f".{camel(name)}"
    if member.type in ("bool", "_Bool"):
        return given or "false"
    return given or "0"


def one_params(
    noun: str, own: Own, members: list[Member], fields: dict[str, Field], public: Header
) -> Iterable[str]:
    """One struct with its way to C."""
    name, raw = f"{noun.capitalize()}Params", f"cow_mlx_{noun}_params"
    entries = [
        (camel(m.name), type_of(m), default_of(m, fields, public), said(m.about, public))
        for m in members
    ]
    entries += [(each, *rest) for each, rest in own.members.items()]
    yield from doc(own.about)
    yield f"public struct {name}: Sendable {{"
    for each, type_, _, about in entries:
        yield from doc(about, "  ")
        yield f"  public var {safe(each)}: {type_}"
    yield ""
    yield "  /// Options with the library's defaults, except those that are given."
    yield "  public init("
    last = len(entries) - 1
    yield from (
        f"    {safe(each)}: {type_} = {default}{',' * (at < last)}"
        for at, (each, type_, default, _) in enumerate(entries)
    )
    yield "  ) {"
    yield from (f"    self.{each} = {safe(each)}" for each, *_ in entries)
    yield "  }"
    yield "}"
    yield ""
    yield f"extension {name} {{"
    yield "  /// Makes a call with C's struct, whose pointers live as long as the call."
    yield "  func withRaw<R>("
    yield f"    _ body: (inout {raw}) throws(CowMLXError) -> R"
    yield "  ) throws(CowMLXError) -> R {"
    yield f'    let lowering = Lowering("{name}")'
    yield f"    var raw = {raw}()"
    yield f"    api.{noun}_params_init(&raw, MemoryLayout<{raw}>.size)"
    for member in members:
        yield f"    {lowered(member)}"
    if own.members:
        yield "    try lowerOwn(&raw, lowering)"
    yield "    defer { withExtendedLifetime(lowering) {} }"
    yield "    return try body(&raw)"
    yield "  }"
    yield "}"
    yield ""


def lowered(member: Member) -> str:
    """The statement that writes a member."""
    name, value = member.name, safe(camel(member.name))
    if member.kind == "strings":
        to = f"(raw.{name}, raw.{member.count})"
        return f'{to} = try lowering.texts("{camel(name)}", {value})'
    if member.kind == "string":
        return f'raw.{name} = try lowering.text("{camel(name)}", {value})'
    if member.enumeration:
        return f"raw.{name} = {value}.rawValue"
    if type_of(member) == "Int":
        size = "size" if member.type == "size_t" else "number"
        return f'raw.{name} = try lowering.{size}("{camel(name)}", {value})'
    return f"raw.{name} = {value}"


# -------------------------------------------------------------------------------- Records


def records(public: Header) -> str:
    """The structs that C fills."""
    lines = ["import CCowMLX", ""]
    for layout in hosts.layouts(public):
        if layout.name in RECORDS:
            lines += record(layout, public)
    return "\n".join(lines)


def record(layout: Layout, public: Header) -> Iterable[str]:
    """One struct, with its way from C."""
    name, about = RECORDS[layout.name]
    members = [each for each in layout.members if each.name != "struct_size"]
    yield from doc(about)
    yield f"public struct {name}: Sendable {{"
    for each in members:
        words = each.name.replace("_", " ")
        yield from doc(said(each.about or f"the {words}", public), "  ")
        yield f"  public var {camel(each.name)}: {read_type(each, public)}"
    yield ""
    yield f"  init(_ raw: {PREFIX}{layout.name}) {{"
    for each in members:
        to, place = camel(each.name), f"raw.{each.name}"
        if each.enumeration:
            found = f"{ENUMS[each.enumeration][0]}(rawValue: {place})"
            yield f"    {to} = {found}{otherwise(each, public)}"
        else:
            yield f"    {to} = {read_type(each, public)}({place})"
    yield "  }"
    yield ""
    yield "  /// What `fill` writes into C's struct."
    yield "  static func filled("
    yield f"    _ fill: (UnsafeMutablePointer<{PREFIX}{layout.name}>) throws(CowMLXError) -> Void"
    yield f"  ) throws(CowMLXError) -> {name} {{"
    yield f"    var raw = {PREFIX}{layout.name}()"
    yield f"    raw.struct_size = MemoryLayout<{PREFIX}{layout.name}>.size"
    yield "    try fill(&raw)"
    yield f"    return {name}(raw)"
    yield "  }"
    yield "}"
    yield ""


def otherwise(member: Member, public: Header) -> str:
    """What stands for a value that this version does not know."""
    values = hosts.enumerations(public)[member.enumeration]
    return "" if "NONE" in values else f" ?? .{camel(next(iter(values)))}"


def read_type(member: Member, public: Header) -> str:
    """The type of a member that C fills."""
    if member.enumeration:
        is_optional = "NONE" in hosts.enumerations(public)[member.enumeration]
        return ENUMS[member.enumeration][0] + "?" * is_optional
    return NUMBERS.get(member.type, "Int")
