"""Writes the parts of the Java binding that repeat the header: functions, constants and structs.

A struct of params is a class whose setters write into memory at the layout's places; one that C
fills is a record.
"""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from tools.bindings import hosts, own_names
from tools.bindings.calls import PREFIX, callback_types
from tools.bindings.header import Header, Signature, Type
from tools.bindings.hosts import Layout, Member, camel, pascal

TYPES = {
    "bool": "boolean",
    "_Bool": "boolean",
    "char": "byte",
    "void": "void",
    "float": "float",
    "double": "double",
    "int32_t": "int",
    "uint32_t": "int",
    "int64_t": "long",
    "uint64_t": "long",
    "size_t": "long",
}
ACCESS = {"boolean": "Byte", "int": "Int", "long": "Long", "float": "Float", "double": "Double"}

# Structs that C fills, with the further components of their records.
RECORDS = {"piece": ("String text",), "stats": (), "event": (), "training_event": ()}
ENUMS = hosts.TYPES_OF_ENUMS
NOUNS = {"array": "NDArray"}
# Objects that have no methods by hand.
HANDLES = {
    "adapter": "A LoRA or DoRA adapter of one model, for {@link Context#setAdapter}.",
    "checkpoint": "The tokens and the cache that a context held at one moment.",
    "training": "A training of a program or of a language model. One call at a time runs on it.",
}
# Objects whose methods are generated: classes that these extend.
METHODS = ("model", "context", "program", "training")


def files(public: Header, generated: str) -> dict[str, str]:
    """The text of each file, by its name."""
    head = f"// {generated}\npackage cowmlx;\n\n"
    texts = {"CowMlx": functions(public), "Dtype": dtypes(public), "Names": names(public)}
    texts["Status"] = enumeration("Status", "What a call returns.", public.statuses)
    for group, values in hosts.enumerations(public).items():
        if group != "FLAGS":
            about = f"Constants of COW_MLX_{group}_."
            texts[ENUMS[group]] = enumeration(ENUMS[group], about, values)
    for layout in hosts.layouts(public):
        if layout.name.endswith("_params"):
            texts[pascal(layout.name)] = params(layout)
        elif layout.name in RECORDS:
            texts[pascal(layout.name)] = record(layout)
    texts |= {pascal(name): handle(name, about) for name, about in HANDLES.items()}
    return {f"{name}.java": head + text for name, text in texts.items()}


# Parameters that have other names than their C names in Java's spelling.
PARAMETERS = {"timeout_ms": "milliseconds", "spec_json": "spec", "attributes_json": "attributes"}


def names(public: Header) -> str:
    """The names of calls, fields and parameters in Java, for errors."""
    fields = {name: camel(name) for name in own_names.fields(public) if "_" in name}
    parameters = {name: camel(name) for name in own_names.parameters(public)} | PARAMETERS
    calls = own_names.calls(own_names.JAVA, public)
    lines = ["import java.util.Map;", "", "/** What calls, fields and parameters of C are here. */"]
    lines += ["final class Names {", "  static final Map<String, String> CALLS = Map.ofEntries("]
    lines += [",\n".join(f'      Map.entry("{key}", "{own}")' for key, own in calls.items()) + ");"]
    lines += ["", "  static final Map<String, String> FIELDS = Map.ofEntries("]
    entries = sorted({**parameters, **fields}.items())
    lines += [",\n".join(f'      Map.entry("{key}", "{own}")' for key, own in entries) + ");"]
    return "\n".join([*lines, "", "  private Names() {}", "}", ""])


# ------------------------------------------------------------------------------ Functions


def functions(public: Header) -> str:
    """The interface that JNA fills."""
    lines = ["import com.sun.jna.Callback;", "import com.sun.jna.Library;"]
    lines += ["import com.sun.jna.Pointer;", ""]
    lines += [
        "/** The functions of cow_mlx.h. A size is 64 bits wide wherever the library runs. */"
    ]
    lines += ["interface CowMlx extends Library {"]
    for name in ("ABI_VERSION", "MAX_RANK"):
        lines.append(f"  int {name} = {public.macros[hosts.MACROS + name]};")
    lines.append(f'  String VERSION = "{public.macros[hosts.MACROS + "VERSION"]}";')
    flags = hosts.enumerations(public)["FLAGS"]
    lines += [f"  int {name} = {value};" for name, value in flags.items()]
    for alias in callback_types(public):
        name = pascal(alias.name.removeprefix(PREFIX))
        assert alias.type.function
        lines += ["", f"  interface {name} extends Callback {{"]
        lines += [f"    {signature('invoke', alias.type.function, public, callback=True)};", "  }"]
    for function in public.functions:
        lines += ["", f"  {signature(function.name, function.signature, public)};"]
    lines += [
        "",
        "  /** Where members of structs lie that are written by hand. */",
        "  interface At {",
    ]
    for layout in hosts.layouts(public):
        if layout.name in ("text", "tensor", "value"):
            noun = layout.name.upper()
            lines.append(f"    int {noun} = {layout.size};")
            lines += [
                f"    int {noun}_{member.name.upper()} = {member.offset};"
                for member in layout.members
            ]
    return "\n".join([*lines, "  }", "}", ""])


def signature(name: str, of: Signature, public: Header, callback: bool = False) -> str:
    """A method; a bool of a callback is a byte, as C's is."""
    params = ", ".join(f"{plain(type_, public)} {camel(param)}" for param, type_ in of.params)
    result = plain(of.result, public)
    if of.result.pointers and of.result.name == "char":
        result = "String"
    if callback and result == "boolean":
        result = "byte"
    text = f"{result} {name}({params})"
    return textwrap.fill(text, 94, subsequent_indent=" " * 6, break_long_words=False)


def plain(type_: Type, public: Header) -> str:
    """The type of a parameter; every pointer of C is a Pointer."""
    callbacks = {alias.name for alias in callback_types(public)}
    if type_.pointers or type_.name in callbacks:
        return "Pointer"
    return TYPES[hosts.resolved(type_.name, public).replace("cow_mlx_status", "int32_t")]


# ------------------------------------------------------------------------------ Constants


def dtypes(public: Header) -> str:
    """The dtypes as an enum that knows their bytes."""
    rows = {name: f"{value}, {size}" for name, (value, size) in public.dtypes.items()}
    about = "Types of elements: 16-bit floats are their bits, complex numbers are pairs."
    member = "  /** Of an element. */\n  public final int bytes;\n"
    return enumeration("Dtype", about, rows, member, ", int bytes", "    this.bytes = bytes;\n")


def enumeration(
    name: str,
    about: str,
    rows: Mapping[str, object],
    member: str = "",
    given: str = "",
    set_: str = "",
) -> str:
    """A list of constants as an enum, which may have a member more than the value."""
    constants = ",\n".join(f"  {constant}({value})" for constant, value in rows.items())
    return f"""/** {about} */
public enum {name} {{
{constants};

  final int value;
{member}
  {name}(int value{given}) {{
    this.value = value;
{set_}  }}

  static {name} of(int value) {{
    for ({name} each : values()) if (each.value == value) return each;
    throw new IllegalStateException("{name} " + value);
  }}
}}
"""


# -------------------------------------------------------------------------------- Structs


def params(layout: Layout) -> str:
    """A class of a struct of params."""
    name = pascal(layout.name)
    members = [member for member in layout.members if is_set(member)]
    lines = ["import java.util.List;", ""] if any(lists(member) for member in members) else []
    lines += [f"/** Members of cow_mlx_{layout.name}; what is not set is the default. */"]
    lines += [f"public final class {name} extends Params<{name}> {{", f"  public {name}() {{"]
    lines += [f"    super({layout.size}, CowMlx::cow_mlx_{layout.name}_init);", "  }"]
    places = {member.name: member.offset for member in layout.members}
    for member in members:
        lines += ["", *javadoc(member.about), *setter(name, member, places)]
    return "\n".join([*lines, "}", ""])


def setter(name: str, each: Member, places: dict[str, int]) -> list[str]:
    """The method that sets a member."""
    count = f", {places[each.count]}" if each.count else ""
    user = places.get("log_user_data" if each.name == "log" else "user_data")
    if each.kind == "callback":
        kind = pascal(each.type.removeprefix(PREFIX)).removesuffix("Fn")
        body = f"hear({each.offset}, {user}, Listener.Kind.{kind.upper()}, value)"
        type_ = f"Listener.{kind}"
    elif each.kind in ("string", "strings"):
        type_ = "String" if each.kind == "string" else "List<String>"
        body = f'{each.kind}("{camel(each.name)}", {each.offset}{count}, value)'
    elif each.kind == "array":
        type_ = f"List<{noun(each.noun)}>" if each.noun else f"{TYPES[each.type]}[]"
        how = "handles" if each.noun else "numbers"
        body = f'{how}("{camel(each.name)}", {each.offset}{count}, value)'
    else:
        type_ = noun(each.noun) if each.noun else ENUMS.get(each.enumeration, TYPES[each.type])
        value = "value"
        if each.noun:
            value = f'Given.open(value, "{camel(each.name)}")'
        kind = TYPES[each.type]
        value = "(byte) (value ? 1 : 0)" if kind == "boolean" else value
        body = f"set(memory -> memory.set{ACCESS[kind]}({each.offset}, {value}))"
        if each.enumeration:  # null is refused here, not where the params are used
            checked = f'Given.given(value, "{camel(each.name)}").value'
            body = f"number({each.offset}, {checked})"
    return [f"  public {name} {camel(each.name)}({type_} value) {{", f"    return {body};", "  }"]


def is_set(each: Member) -> bool:
    """Whether hosts set a member: not sizes, counts and user data."""
    return not (each.name.endswith(("_count", "user_data")) or each.name == "struct_size")


def lists(each: Member) -> bool:
    """Whether a member is a list."""
    return each.kind == "strings" or (each.kind == "array" and bool(each.noun))


def record(layout: Layout) -> str:
    """A record of a struct that C fills."""
    name = pascal(layout.name)
    shown = [member for member in layout.members if member.name not in ("struct_size", "length")]
    extra = RECORDS[layout.name]
    parts = [*extra, *(f"{kind_of(each)} {camel(each.name)}" for each in shown)]
    given = "".join(f", {component}" for component in extra)
    values = [component.split()[1] for component in extra] + [
        reading(each, layout) for each in shown
    ]
    lines = [
        "import com.sun.jna.Pointer;",
        "",
        "/**",
        f" * What cow_mlx_{layout.name} tells.",
        " *",
    ]
    for each in shown:
        lines += textwrap.wrap(
            f"@param {camel(each.name)} {escaped(each.about)}",
            96,
            initial_indent=" * ",
            subsequent_indent=" *     ",
            break_long_words=False,
        )
    lines += [" */", f"public record {name}("]
    lines += [
        ",\n".join(f"    {part}" for part in parts) + ") {",
        f"  static final int SIZE = {layout.size};",
        "",
    ]
    lines += [f"  static {name} read(Pointer memory{given}) {{", f"    return new {name}("]
    lines += [",\n".join(f"        {value}" for value in values) + ");", "  }", "}", ""]
    return "\n".join(lines)


def handle(name: str, about: str) -> str:
    """A class of a handle."""
    own, made = f"{pascal(name)}Methods", "handle"
    if name not in METHODS:
        own, made = "Handle", handle_given(name)
    return f"""/** {about} */
public final class {pascal(name)} extends {own} {{
  {pascal(name)}(int handle) {{
    super({made});
  }}
}}
"""


def handle_given(name: str) -> str:
    """What the constructor of Handle is given."""
    return f'"{name}", handle, number -> Api.get().{PREFIX}{name}_free((int) number)'


def kind_of(each: Member) -> str:
    """The type of a record's component."""
    return "String" if each.kind == "string" else ENUMS.get(each.enumeration, TYPES[each.type])


def reading(each: Member, layout: Layout) -> str:
    """The expression that reads a component."""
    if each.kind == "string":
        sized = next((m for m in layout.members if m.name == "length"), None)
        length = f"(int) memory.getLong({sized.offset})" if sized and each.name == "text" else "-1"
        return f"Arena.text(memory.getPointer({each.offset}), {length})"
    expression = f"memory.get{ACCESS[TYPES[each.type]]}({each.offset})"
    if each.enumeration:
        return f"{ENUMS[each.enumeration]}.of({expression})"
    return f"{expression} != 0" if each.type == "bool" else expression


# ---------------------------------------------------------------------------------- Names


def javadoc(text: str) -> Iterable[str]:
    """A comment above a method."""
    if not text:
        return []
    lines: Sequence[str] = textwrap.wrap(escaped(text), 92, break_long_words=False)
    if len(lines) == 1:
        return [f"  /** {lines[0]} */"]
    return ["  /**", *(f"   * {line}" for line in lines), "   */"]


def escaped(text: str) -> str:
    """A text that javadoc takes as it is."""
    return html.escape(text, quote=False).replace("@", "{@literal @}")


def noun(name: str) -> str:
    """The class of a handle's noun."""
    return NOUNS.get(name, pascal(name))
