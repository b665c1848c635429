"""Writes the methods of Go and Java for calls that no source makes by hand, by roles.

Each role of a parameter has one way to be lowered, each kind of result one way to be read. Calls
that need a form of the language's own, such as iterators and futures, are written by hand.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tools.bindings import emit_go, emit_java, hosts, own_names
from tools.bindings.calls import PREFIX, Call, Role
from tools.bindings.emit_methods import buffer_of, by_hand
from tools.bindings.header import Header

# Calls whose methods of Go take a context.Context, which cancels them.
CANCELED = ("context_trim_end", "context_trim_front", "context_save", "context_load")
CANCELED += ("context_save_array", "context_load_array")
CANCELED += (
    "context_begin_embeddings",
    "context_prompt_logits",
    "context_hidden_states",
    "context_perplexity",
)
CANCELED += ("context_begin", "context_generate", "context_chat")
CANCELED += ("training_step", "training_fit", "training_evaluate")
# Elements that buffers have at first, where the inputs do not tell.
CAPACITIES = {"context_logits": "1 << 18", "context_prompt_logits": "1 << 18"}
CAPACITIES |= {"model_embed": "rows", "model_rank": "rows"}
CAPACITY = {"char": "1 << 14", "int32_t": "1024", "float": "1024"}


@dataclass(frozen=True)
class Input:
    """How a language takes a parameter, lowers it, and passes it, if with a second argument.

    The texts are formats: {name} and {c} are variables, {type} and {noun} types.
    """

    takes: str
    before: str
    given: str
    second: str = ""


@dataclass(frozen=True)
class Output:
    """The type of a result; how a place for it is made and passed; how it is read."""

    type: str
    room: str
    given: str
    read: str


GO_INPUTS = {
    "own": Input("", "", "{me}.handle()"),
    "handle": Input("{name} *{noun}", "", "{name}.handle()"),
    "flags": Input("flags Flags", "", "uint32(flags)"),
    "size": Input("{name} uint64", "", "uintptr({name})"),
    "scalar": Input("{name} {type}", "", "{name}"),
    "string": Input("{name} string", '{c} := l.text("{name}", {name})', "{c}"),
    "optional": Input("{name} string", '{c} := l.optional("{name}", {name})', "{c}"),
    "json": Input("{name} any", '{c} := l.json("{name}", {name})', "{c}"),
    "json_text": Input(
        "{name} any", '{c} := l.encoded("{name}", {name})', "pointer({c})", "len({c})"
    ),
    "text": Input("{name} string", "", "unsafe.Pointer(unsafe.StringData({name}))", "len({name})"),
    "tokens": Input("{name} []int32", "", "pointer({name})", "len({name})"),
    "texts": Input(
        "{name} []string", "{c}, rows := lowered({name}), len({name})", "pointer({c})", "rows"
    ),
    "values": Input("{name} ...Value", '{c} := values(l, "{name}", {name})', "{c}", "len({name})"),
    "params": Input("{name} *{type}", "{c} := {name}.lower(l)", "{c}"),
    "callback": Input(
        "{name} {type}",
        "l.on.{kind} = {name}\n{c} := l.hears({name} != nil)",
        "callback(trampolines.{kind}, {c})",
        "{c}",
    ),
}
GO_ROOM = "{name} := &c{type}{{structSize: unsafe.Sizeof(c{type}{{}})}}"
GO_OUTPUTS = {
    "struct": Output("{type}", GO_ROOM, "unsafe.Pointer({name})", "{name}.goForm()"),
    "array": Output("*{noun}", "var {name} int64", "&{name}", "new{noun}({name})"),
    "object": Output("*{noun}", "var {name} int32", "&{name}", "new{noun}({name})"),
    "size": Output("uint64", "var {name} uintptr", "&{name}", "uint64({name})"),
    "scalar": Output("{type}", "var {name} {type}", "&{name}", "{name}"),
    "described": Output("map[string]any", "", "", "result"),
    "rows": Output("[][]{type}", "", "", "rowsOf(result, rows)"),
    "text": Output("string", "", "", "string(result)"),
    "elements": Output("[]{type}", "", "", "result"),
}
JAVA_INPUTS = {
    "own": Input("", "", "handle()"),
    "handle": Input("{noun} {name}", "", 'Given.open({name}, "{name}")'),
    "scalar": Input("{type} {name}", "", "{name}"),
    "string": Input("String {name}", 'Pointer {c} = arena.string({name}, "{name}");', "{c}"),
    "text": Input(
        "String {name}",
        'byte[] utf8 = Arena.utf8({name}, "{name}");\nMemory {c} = arena.copy(utf8);',
        "{c}",
        "utf8.length",
    ),
    "tokens": Input(
        "int[] {name}",
        'Memory {c} = arena.copy(Given.given({name}, "{name}"));',
        "{c}",
        "{name}.length",
    ),
    "texts": Input(
        "List<String> {name}",
        'int rows = Given.given({name}, "{name}").size();\n'
        'Memory {c} = arena.texts({name}, "{name}");',
        "{c}",
        "rows",
    ),
    "values": Input(
        "List<? extends Value> {name}",
        "Pointer {c} = Value.lower(arena, {name});",
        "{c}",
        "{name}.size()",
    ),
    "params": Input(
        "{type} {name}", "Pointer {c} = Params.lower(arena, listener, {watched}, {name});", "{c}"
    ),
    "callback": Input(
        "{type} {name}",
        "{type} heard = {name} != null ? {name} : ignored -> true;\n"
        "Pointer {c} = listener.hear(Listener.Kind.{KIND}, heard);",
        "{c}",
        "listener.id()",
    ),
}
JAVA_INPUTS |= {"flags": JAVA_INPUTS["scalar"], "size": JAVA_INPUTS["scalar"]}
JAVA_INPUTS |= {"optional": JAVA_INPUTS["string"], "json": JAVA_INPUTS["string"]}
JAVA_INPUTS |= {"json_text": JAVA_INPUTS["text"]}
JAVA_ROOM = ("Memory {name} = arena.allocate(8);", "{name}")
JAVA_OUTPUTS = {
    "struct": Output(
        "{type}", "Memory {name} = arena.struct({type}.SIZE);", "{name}", "{type}.read({name})"
    ),
    "array": Output("{noun}", *JAVA_ROOM, "new {noun}({name}.getLong(0))"),
    "object": Output("{noun}", *JAVA_ROOM, "new {noun}({name}.getInt(0))"),
    "bool": Output("boolean", *JAVA_ROOM, "{name}.getByte(0) != 0"),
    "size": Output("long", *JAVA_ROOM, "{name}.getLong(0)"),
    "scalar": Output("{type}", *JAVA_ROOM, "{name}.get{access}(0)"),
    "described": Output("Map<String, Object>", "", "", "Json.object(filled)"),
    "rows": Output("{type}[][]", "", "", "Fill.rows(rows, filled)"),
    "text": Output("String", "", "", "filled"),
    "elements": Output("{type}[]", "", "", "filled"),
}


def input_kind(role: Role, owner: str) -> str:
    """The row of the tables of inputs, in a method of a noun."""
    if role.kind == "handle":
        return "own" if role.name == owner.lower() else "handle"
    if role.kind == "scalar":
        return {"flags": "flags"}.get(role.name, "size" if role.type.name == "size_t" else "scalar")
    if role.kind == "string":
        is_json = role.name.endswith("_json")
        return "json" if is_json else "optional" if role.nullable else "string"
    return "json_text" if role.name.endswith("_json") else role.kind


def output_kind(role: Role, call: Call, nouns: list[str], table: dict[str, Output]) -> str:
    """The row of the tables of outputs."""
    if role.kind == "struct_out":
        return "struct"
    if role.kind == "buffers_out":
        if call.name.endswith(("_info", "_inspect")):
            return "described"
        if has_rows(call):
            return "rows"
        return "text" if role.type.name == "char" else "elements"
    noun = role.type.name.removeprefix(PREFIX)
    if noun in nouns:
        return "array" if noun == "array" else "object"
    kind = {"size_t": "size", "bool": "bool", "_Bool": "bool"}.get(role.type.name, "scalar")
    return kind if kind in table else "scalar"


def has_rows(call: Call) -> bool:
    """Whether the result is a row for each of several texts."""
    return any(role.kind == "texts" for role in call.roles)


def nouns_of(public: Header) -> list[str]:
    """The nouns of handles."""
    names = [function.name.removeprefix(PREFIX) for function in public.functions]
    return [name.removesuffix("_free") for name in names if name.endswith("_free")]


@dataclass
class Method:
    """A method in the making: what it takes, does before the call, passes and returns."""

    call: Call
    nouns: list[str]
    inputs: dict[str, Input]
    outputs: dict[str, Output]
    words: Callable[[Role], dict[str, str]]
    name: str  # such as "Context.save"; without an owner in a function of Go
    number: str = "{}"  # a size as an argument
    takes: list[tuple[str, str]] = field(default_factory=list)  # with the roles' kinds
    before: list[str] = field(default_factory=list)
    given: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, str] = field(default_factory=dict)
    types: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.owner, _, self.verb = self.name.rpartition(".")
        self.buffer = buffer_of(self.call)
        for role in self.call.roles:
            if role.is_output:
                self._output(role)
            else:
                self._input(role)

    def _input(self, role: Role) -> None:
        kind = input_kind(role, self.owner)
        if kind not in self.inputs:
            raise ValueError(f"{self.call.name}: write its methods of Go and Java by hand")
        row, words = self.inputs[kind], self.words(role) | {"me": self.owner[:1].lower()}
        if row.takes:
            self.takes.append((role.kind, row.takes.format(**words)))
        self.before += row.before.format(**words).split("\n") if row.before else []
        self.given[role.name] = row.given.format(**words)
        if row.second:
            self.sizes[role.kind] = size = row.second.format(**words)
            self.given[role.names[1]] = self.number.format(size)

    def _output(self, role: Role) -> None:
        row = self.outputs[output_kind(role, self.call, self.nouns, self.outputs)]
        words = self.words(role)
        self.types.append(row.type.format(**words))
        self.read.append(row.read.format(**words))
        self.given |= {name: name for name in role.names}
        if row.room:
            self.before.append(row.room.format(**words))
            self.given[role.name] = row.given.format(**words)

    @property
    def arguments(self) -> str:
        """What C is given."""
        return ", ".join(self.given[name] for name, _ in self.call.function.signature.params)

    @property
    def capacity(self) -> str:
        """The elements of the buffer at first."""
        assert self.buffer
        if self.call.name in CAPACITIES:
            return CAPACITIES[self.call.name]
        if "text" in self.sizes:
            return f"{self.sizes['text']} + 64"
        if "tokens" in self.sizes:
            return f"8 * {self.sizes['tokens']} + 16"
        return CAPACITY[self.buffer.type.name]

    @property
    def begins(self) -> bool:
        """Whether it begins a generation, which ends that of a follower."""
        types = [role.type.name for role in self.call.roles]
        return f"{PREFIX}generation_params" in types

    @property
    def leaves_early(self) -> bool:
        """Whether the generation that it begins continues after it."""
        return self.begins and not any(role.kind == "callback" for role in self.call.roles)


# --------------------------------------------------------------------------------------- Go


def go(calls: list[Call], public: Header, folder: Path, generated: str) -> str:
    """Return the text of bindings/go/methods.go."""
    note = generated[1:].replace("; do not edit.", ". DO NOT EDIT.")
    names = own_names.calls(own_names.GO, public)
    code, nouns = by_hand(folder, "*.go"), nouns_of(public)
    lines = [f"// Code g{note}", "", "package cowmlx", "", 'import (\n\t"context"\n\t"unsafe"\n)']
    for noun in nouns:
        if noun != "array":
            is_canceled = any(call.name == f"{noun}_cancel" for call in calls)
            lines += go_object(noun, is_canceled, code)
    for call in calls if code else []:
        is_made = re.search(rf"\bapi\.{emit_go.field_name(call.name)}\b", code)
        if not is_made and not call.name.endswith(("_free", "_cancel")):
            method = Method(
                call, nouns, GO_INPUTS, GO_OUTPUTS, go_words, names[call.name], "uintptr({})"
            )
            lines += ["", *go_method(method)]
    return "\n".join([*lines, ""])


def go_words(role: Role) -> dict[str, str]:
    """The names and types of a role in Go."""
    type_ = role.type.name.removeprefix(PREFIX)
    kind = type_.removesuffix("_fn")
    own = emit_go.TYPES.get(role.type.name, emit_go.pascal(type_))
    own = f"{emit_go.pascal(kind)}Func" if kind != type_ else own
    name = emit_go.word(role.name.removesuffix("_json"))
    c_name = "c" + emit_go.pascal(role.name)
    return {"name": name, "c": c_name, "type": own, "noun": emit_go.pascal(type_), "kind": kind}


def go_object(name: str, is_canceled: bool, code: str) -> list[str]:
    """What each handle's type has: its handle, how it is made, closed and canceled."""
    type_, me = emit_go.pascal(name), name[0]
    lines = ["", f"func ({me} *{type_}) handle() int32 {{ return handle({me}) }}", ""]
    lines += [f"func new{type_}(handle int32) *{type_} {{", f"\t{me} := &{type_}{{}}"]
    lines += [f"\t{me}.open(handle, &api.{name}Free)", f"\treturn {me}", "}"]
    if f"func ({me} *{type_}) Close()" not in code:
        about = "// Close frees it; a second time does nothing, nor after the runtime was stopped."
        lines += ["", about, f"func ({me} *{type_}) Close() error {{ return release({me}) }}"]
    if is_canceled:
        about = f"// Cancel ends what runs on the {name}, which stays usable; for any goroutine."
        lines += ["", about, f"func ({me} *{type_}) Cancel() error {{"]
        lines += [f'\treturn canceled({me}.handle(), "{name}", {me}.cancel)', "}"]
        lines += ["", f"func ({me} *{type_}) cancel() int32 {{"]
        lines += [f"\treturn api.{name}Cancel({me}.handle())", "}"]
    return lines


def go_method(method: Method) -> Iterable[str]:
    """One method or function of Go. Params stand last, but for callbacks."""
    call, me = method.call, method.owner[:1].lower()
    is_canceled = call.name in CANCELED
    order = {"params": 1, "callback": 2}
    takes = [text for _, text in sorted(method.takes, key=lambda each: order.get(each[0], 0))]
    takes = ["ctx context.Context"] * is_canceled + takes
    optional = [text.split()[0] for kind, text in method.takes if kind == "callback"]
    summary = call.function.summary
    text = f"{method.verb} calls {call.function.name}(): {summary[:1].lower()}{summary[1:]}"
    text += "".join(f" {name} may be nil." for name in optional)
    yield from (f"// {line}" for line in textwrap.wrap(text, 96, break_long_words=False))
    receiver = f"({me} *{method.owner}) " if me else ""
    gives = f"({', '.join([*method.types, 'error'])})" if method.types else "error"
    yield f"func {receiver}{method.verb}({', '.join(takes)}) {gives} {{"
    yield from (f"\t{line}" for line in ["l := &lowering{}", *method.before])
    if method.leaves_early:
        yield "\tl.refuseLogits()"
    made = f"api.{emit_go.field_name(call.name)}({method.arguments})"
    made = f"return {me}.begun({made})" if method.begins else f"return {made}"
    if buffer := method.buffer:
        data, capacity, size = buffer.names
        element = {"char": "byte"}.get(buffer.type.name) or emit_go.TYPES[buffer.type.name]
        rows = "rows" if has_rows(call) else "1"
        how = f"filledUntil[{element}](ctx, {me}.cancel, " if is_canceled else f"filled[{element}]("
        yield f"\tresult, err := {how}l, {method.capacity.replace(' ', '')}, {rows},"
        yield f"\t\tfunc({data} unsafe.Pointer, {capacity} uintptr, {size} *uintptr) int32 {{"
        yield from (f"\t\t\t{made}", "\t\t})")
    else:
        how = f"l.canceling(ctx, {me}.cancel, " if is_canceled else "l.call("
        yield from (f"\terr := {how}func() int32 {{", f"\t\t{made}", "\t})")
    if method.read and method.read[0].startswith("new"):
        yield from ("\tif err != nil {", "\t\treturn nil, err", "\t}")
    if "map[string]any" in method.types:
        yield "\treturn described(result, err)"
    else:
        yield f"\treturn {', '.join([*method.read, 'err'])}"
    yield "}"


# ------------------------------------------------------------------------------------- Java


def java(calls: list[Call], public: Header, folder: Path, generated: str) -> dict[str, str]:
    """The text of each file of bindings/java/src/generated/java/cowmlx, by its name."""
    names = own_names.calls(own_names.JAVA, public)
    code, nouns = by_hand(folder, "*.java"), nouns_of(public)
    owners: dict[str, list[str]] = {hosts.pascal(noun): [] for noun in emit_java.METHODS}
    for call in calls if code else []:
        if not call.name.endswith("_free") and not re.search(rf"\b{call.function.name}\b", code):
            method = Method(call, nouns, JAVA_INPUTS, JAVA_OUTPUTS, java_words, names[call.name])
            if method.owner not in owners:
                raise ValueError(f"{call.name}: write its method of Java by hand")
            owners[method.owner] += ["", *java_method(method)]
    return {
        f"{owner}Methods.java": f"// {generated}\n" + java_class(owner, methods)
        for owner, methods in owners.items()
    }


def java_words(role: Role) -> dict[str, str]:
    """The names and types of a role in Java."""
    type_ = role.type.name.removeprefix(PREFIX)
    kind = type_.removesuffix("_fn")
    own = emit_java.TYPES.get(role.type.name, hosts.pascal(type_))
    return {
        "name": hosts.camel(role.name),
        "c": "c" + hosts.pascal(role.name),
        "type": f"Listener.{hosts.pascal(kind)}" if kind != type_ else own,
        "noun": emit_java.noun(type_),
        "KIND": kind.upper(),
        "access": emit_java.ACCESS.get(own, ""),
        "watched": "Context.WATCHED" if own == "GenerationParams" else "null",
    }


def java_class(noun: str, methods: list[str]) -> str:
    """A class of methods, which the class of the noun extends."""
    body = "\n".join(methods)
    return f"""package cowmlx;

import com.sun.jna.Memory;
import com.sun.jna.Pointer;
import java.util.List;
import java.util.Map;

/** Methods of {noun} that follow from the header. */
abstract class {noun}Methods extends Handle {{
  {noun}Methods(int handle) {{
    super({emit_java.handle_given(noun.lower())});
  }}
{body}
}}
"""


def java_method(method: Method) -> Iterable[str]:
    """One method of Java; several results are a record."""
    call, buffer = method.call, method.buffer
    result, given = (method.types or ["void"])[0], ", ".join(method.read)
    if len(method.types) > 1:
        result = hosts.pascal(call.name.partition("_")[2])
        names = [hosts.camel(role.name) for role in call.outputs]
        parts = ", ".join(map(" ".join, zip(method.types, names, strict=True)))
        yield f"  /** Results of {method.verb}(). */"
        yield from (f"  public record {result}({parts}) {{}}", "")
        given = f"new {result}({given})"
    yield from emit_java.javadoc(f"{call.function.summary.rstrip('.')}: {call.function.name}().")
    how = "" if "handle()" in method.given.values() else "static "
    takes = ", ".join(text for _, text in method.takes)
    yield f"  public {how}{result} {method.verb}({takes}) {{"
    made = f"Api.get().{call.function.name}({method.arguments})"
    if call.name.endswith("_cancel"):
        yield from (f"    checkCancel({made});", "  }")
        return
    yield "    try (Arena arena = new Arena(); Listener listener = new Listener()) {"
    yield from (f"      {line}" for line in method.before)
    if method.leaves_early:
        yield "      listener.refuseLogits();"
    if buffer:
        fill = {"char": "text(", "int32_t": "ints(", "float": "floats("}[buffer.type.name]
        rows = "rows, " if has_rows(call) else "1, " if buffer.type.name == "float" else ""
        names = ", ".join(buffer.names)
        yield f"      var filled = Fill.{fill}{method.capacity}, {rows}({names}) ->"
        yield f"          {made});"
    elif method.begins:
        yield "      listener.check(((Context) this).begun(() ->"
        yield f"          {made}));"
    else:
        yield f"      listener.check({made});"
    if given:
        yield f"      return {given};"
    yield from ("    }", "  }")
