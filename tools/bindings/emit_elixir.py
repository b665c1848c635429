"""Writes the C sources of the Elixir binding that repeat the header: calls, layouts and functions.

A generated call reads its arguments from terms by the roles of its parameters, makes the call, and
returns its results as terms (bindings/elixir/c_src/frame.h).
"""

from __future__ import annotations

from collections.abc import Iterable

from tools.bindings import hosts
from tools.bindings.call_table import Is, of
from tools.bindings.calls import PREFIX, Call, Role
from tools.bindings.calls import read as read_calls
from tools.bindings.header import Header

# Calls that c_src/hand_calls.c has, or that the binding does not make.
BY_HAND = ("runtime_start", "model_load", "model_load_async", "model_poll", "model_wake_fd")
BY_HAND += ("context_wake_fd", "context_begin_async", "context_chat_async", "context_next_event")
BY_HAND += ("context_generate", "context_chat", "training_fit")
# Handles that may be left out.
NULLABLE = {("context_set_adapter", "adapter")}
# Elements that buffers have at first, where the inputs do not tell.
CAPACITIES = {"context_logits": "1 << 18", "model_embed": "texts.count"}
CAPACITIES |= {"model_rank": "documents.count", "context_next": "512"}
CAPACITY = {"char": "1 << 14", "int32_t": "1024", "float": "1024", f"{PREFIX}array": "16"}
LIMITS = {
    "int32_t": ("int", "INT32_MIN, INT32_MAX"),
    "int64_t": ("int", "INT64_MIN, INT64_MAX"),
    "uint32_t": ("uint", "UINT32_MAX"),
    "uint64_t": ("uint", "UINT64_MAX"),
    "size_t": ("uint", "SIZE_MAX"),
}
MEMBERS = {
    "bool": "COW_BOOL",
    "int32_t": "COW_INT32",
    "uint32_t": "COW_UINT32",
    "int64_t": "COW_INT64",
    "uint64_t": "COW_UINT64",
    "size_t": "COW_SIZE",
    "float": "COW_FLOAT",
    "double": "COW_DOUBLE",
}
FILLED = ("stats", "training_event", "piece")


def files(public: Header, generated: str) -> dict[str, str]:
    """The text of each file of c_src/tables, by its name."""
    return {
        "functions.h": functions(public, generated),
        "layout_names.h": layout_names(public, generated),
        "layouts.inc": layouts(public, generated),
        "calls.c": calls(public, generated),
    }


def made(public: Header) -> list[Call]:
    """The calls that are generated."""
    known = (call for call in read_calls(public) if call.name not in BY_HAND)
    return [call for call in known if not call.name.endswith("_free")]


def functions(public: Header, generated: str) -> str:
    """The list of the library's functions."""
    names = [function.name.removeprefix(PREFIX) for function in public.functions]
    lines = [f"/* {generated} */", "#define COW_NIF_FUNCTIONS(X) \\"]
    lines += [f"  X({name}) \\" for name in names]
    return "\n".join([*lines, "  /* the last */", ""])


# ----------------------------------------------------------------------------------- Layouts


def shown(public: Header) -> list[hosts.Layout]:
    """The structs that are maps in Elixir."""
    known = hosts.layouts(public)
    return [each for each in known if each.name.endswith("_params") or each.name in FILLED]


def layout_names(public: Header, generated: str) -> str:
    """The declarations of the layouts."""
    lines = [f"extern const cow_layout cow_{layout.name}_layout;" for layout in shown(public)]
    return "\n".join([f"/* {generated} */", *lines, ""])


def layouts(public: Header, generated: str) -> str:
    """The tables of members."""
    lines = [f"/* {generated} */", "/* clang-format off */"]
    for layout in shown(public):
        struct = f"{PREFIX}{layout.name}"
        lines += [f"static const cow_member {layout.name}_members[] = {{"]
        lines += [f"    {member(struct, each)}," for each in members(layout)]
        size = f"sizeof {layout.name}_members / sizeof *{layout.name}_members"
        lines += ["};", f"const cow_layout cow_{layout.name}_layout = {{"]
        lines += [f"    sizeof({struct}), {layout.name}_members, {size}}};"]
    return "\n".join([*lines, ""])


def members(layout: hosts.Layout) -> list[hosts.Member]:
    """The members that Elixir has; the binding sets sizes and counts."""
    counts = {each.count for each in layout.members}
    hidden = {"struct_size", "user_data", "logits_fn", *counts}  # CowMLX.Logits sets it
    return [each for each in layout.members if each.name not in hidden and each.kind != "pointer"]


def member(struct: str, each: hosts.Member) -> str:
    """One row of a table of members."""
    count = f"offsetof({struct}, {each.count})" if each.count else "0"
    element = "0"
    kind = MEMBERS.get(each.type, "COW_INT32")
    if each.noun:
        kind = "COW_ARRAYS" if each.kind == "array" else "COW_HANDLE"
    elif each.kind == "array":
        kind, element = "COW_ELEMENTS", f"sizeof({each.type})"
    elif each.kind in ("string", "strings", "callback"):
        kind = f"COW_{each.kind.upper()}"
    return f"MEMBER({struct}, {each.name}, {kind}, {count}, {element})"


# ------------------------------------------------------------------------------------- Calls


def calls(public: Header, generated: str) -> str:
    """The calls and their table."""
    lines = [f"/* {generated} */", "/* clang-format off */", '#include "calls.h"']
    lines += ['#include "layouts.h"', '#include "library.h"']
    known = made(public)
    for call in known:
        lines += ["", *body(call)]
    lines += ["", "const cow_call cow_generated_calls[] = {"]
    for call in known:
        lines.append(f'    {{"{call.name}", {arity(call)}, {way(call)}, make_{call.name}}},')
    lines += ["};", "", "const size_t cow_generated_count ="]
    lines += ["    sizeof cow_generated_calls / sizeof *cow_generated_calls;", ""]
    return "\n".join(lines)


def way(call: Call) -> str:
    """How it is made."""
    if call.name.endswith("_cancel"):
        return "COW_DIRECT"
    return "COW_READS" if Is.READ_ONLY in of(call.name) else "COW_WAITS"


def arity(call: Call) -> int:
    """The arguments that it takes; how many results there will be is one of them."""
    return len(call.inputs)


def body(call: Call) -> Iterable[str]:
    """One call."""
    yield f"static ERL_NIF_TERM make_{call.name}(cow_frame* frame) {{"
    given: dict[str, str] = {}
    for index, role in enumerate(call.inputs):
        yield from (f"  {line}" for line in taken(call, role, index, given))
    yield from (f"  {line}" for line in same_counts(call))
    if call.inputs:
        yield "  if (frame->refused) return cow_refusal(frame);"
    results = []
    for role in call.outputs:
        lines, terms = received(call, role, given)
        yield from (f"  {line}" for line in lines)
        results += terms
    if any(role.kind in ("buffers_out", "handles_out") for role in call.outputs):
        yield "  if (frame->refused) return cow_refusal(frame);"
    yield from (f"  {line}" for line in call_lines(call, given))
    if call.name.endswith("_cancel"):
        noun = call.name.removesuffix("_cancel")
        yield f'  return cow_canceled(frame->env, status, "{noun}");'
    else:
        yield from (f"  {line}" for line in result_lines(results))
    yield "}"


def taken(call: Call, role: Role, index: int, given: dict[str, str]) -> list[str]:
    """The lines that read an argument; what the call is given for it."""
    name, type_, at = role.name, role.type.name, f"frame, {index}"
    given[name] = name
    if role.kind == "handle":
        noun = type_.removeprefix(PREFIX)
        nullable = "true" if (call.name, name) in NULLABLE else "false"
        take = f"cow_take_handle({at}, COW_KIND_{noun.upper()}, {nullable})"
        return [f"{type_} {name} = ({type_}){take};"]
    if role.kind == "scalar":
        return [f"{type_} {name} = {scalar(type_, at)};"]
    if role.kind == "string":
        nullable = "true" if role.nullable else "false"
        return [f"const char* {name} = cow_take_string({at}, {nullable});"]
    if role.kind == "params":
        given[name] = f"&{name}"
        noun = type_.removeprefix(PREFIX)
        lines = [f"{type_} {name};", f"api.{noun}_init(&{name}, sizeof {name});"]
        return [*lines, f"cow_take_params({at}, &cow_{noun}_layout, &{name});"]
    if role.kind == "values_out":
        given |= {role.names[0]: f"{name}.data", role.names[1]: f"{name}.count"}
        count = f"cow_take_uint({at}, 65535)"
        return [
            f"cow_values {name} = {{NULL, {count}}};",
            f"{name}.data = cow_frame_memory(frame, {name}.count, sizeof(cow_mlx_value));",
        ]
    kinds = {"text": ("cow_mlx_text", "text", ""), "texts": ("cow_texts", "texts", "")}
    kinds["tokens"] = ("cow_elements", "elements", ", sizeof(int32_t)")
    kinds["strings"] = ("cow_names", "names", "")
    kinds["handles"] = ("cow_handles", "handles", "")
    kinds["values"] = ("cow_values", "values", "")
    own, verb, more = kinds[role.kind]
    size = "length" if role.kind == "text" else "count"
    given[name] = f"{name}.data"
    given[role.names[1] if len(role.names) > 1 else role.count] = f"{name}.{size}"
    return [f"{own} {name} = cow_take_{verb}({at}{more});"]


def scalar(type_: str, at: str) -> str:
    """The expression that reads a number."""
    if type_ in ("bool", "_Bool"):
        return f"cow_take_bool({at})"
    if type_ in ("float", "double"):
        return f"({type_})cow_take_number({at})"
    kind, limits = LIMITS[type_]
    return f"({type_})cow_take_{kind}({at}, {limits})"


def same_counts(call: Call) -> Iterable[str]:
    """A refusal where two inputs have to be of one length."""
    counted = [role for role in call.inputs if role.count]
    for index, role in enumerate(counted[1:], 1):
        yield f"if ({role.name}.count != {counted[0].name}.count) {{"
        yield f'  cow_refuse(frame, {call.inputs.index(counted[index])}, "one for each name");'
        yield "}"


def received(call: Call, role: Role, given: dict[str, str]) -> tuple[list[str], list[str]]:
    """The lines that make room for a result, and the terms of it."""
    name, type_ = role.name, role.type.name
    noun = type_.removeprefix(PREFIX)
    if role.kind == "values_out":
        return [], [f"cow_value_terms(frame->env, {name})"]
    given[name] = f"&{name}"
    if role.kind == "struct_out":
        room = f"{type_} {name} = {{.struct_size = sizeof {name}}};"
        return [room], [f"cow_struct_term(frame->env, &cow_{noun}_layout, &{name})"]
    if role.kind == "handles_out":
        given[name] = name
        size = given[role.count]
        room = f"{type_}* {name} = cow_frame_memory(frame, {size}, sizeof *{name});"
        return [room], [f"cow_array_terms(frame->env, {name}, {size})"]
    if role.kind == "buffers_out":
        return buffers(call, role, given)
    if type_.startswith(PREFIX):
        term = f"cow_object_term(frame->env, COW_KIND_{noun.upper()}, {name})"
        return [f"{type_} {name} = 0;"], [term]
    term = f"enif_make_uint64(frame->env, {name})"
    if type_ in ("float", "double"):
        term = f"cow_number(frame->env, {name})"
    if type_ in ("bool", "_Bool"):
        term = f'cow_atom(frame->env, {name} ? "true" : "false")'
        type_ = "bool"
    return [f"{type_} {name} = 0;"], [term]


def buffers(call: Call, role: Role, given: dict[str, str]) -> tuple[list[str], list[str]]:
    """The same for buffers, which grow until the result fits."""
    lines, terms = [], []
    capacity_name, size = role.names[-2:]
    has_rows = next((each for each in call.inputs if each.kind == "texts"), None)
    for name, type_ in role.buffers:
        element = type_.name
        lines.append(f"cow_buffer {name} = {{.element = sizeof({element})}};")
        lines.append(f"cow_buffer_grow(frame, &{name}, {capacity(call, element)});")
        given[name] = f"{name}.data"
        if element == f"{PREFIX}array":
            terms.append(f"cow_array_terms(frame->env, {name}.data, {size})")
        else:
            count = f"{size} * {has_rows.name}.count" if has_rows else size
            bytes_ = f"({count}) * sizeof({element})"
            terms.append(f"cow_bytes(frame->env, {name}.data, {bytes_})")
    given[capacity_name] = f"{role.buffers[0][0]}.capacity"
    given[size] = f"&{size}"
    lines.append(f"size_t {size} = 0;")
    if has_rows:
        terms.append(f"enif_make_uint64(frame->env, {size})")
    return lines, terms


def capacity(call: Call, element: str) -> str:
    """The elements of a buffer at first."""
    if call.name in CAPACITIES:
        return CAPACITIES[call.name]
    texts = [role.name for role in call.inputs if role.kind == "text"]
    tokens = [role.name for role in call.inputs if role.kind == "tokens"]
    if texts:
        return f"{texts[0]}.length + 64"
    return f"8 * {tokens[0]}.count + 64" if tokens else CAPACITY[element]


def call_lines(call: Call, given: dict[str, str]) -> Iterable[str]:
    """The call, again while a buffer is too small."""
    arguments = ", ".join(given[name] for name, _ in call.function.signature.params)
    role = next((role for role in call.outputs if role.kind == "buffers_out"), None)
    yield f"cow_mlx_status status = api.{call.name}({arguments});"
    if not role:
        return
    rows = next((f" * {each.name}.count" for each in call.inputs if each.kind == "texts"), "")
    grown = " && ".join(
        f"cow_buffer_grow(frame, &{name}, {role.names[-1]}{rows} + 1)" for name, _ in role.buffers
    )
    yield f"while (status == COW_MLX_EBUFFER && {grown}) {{"
    yield f"  status = api.{call.name}({arguments});"
    yield "}"


def result_lines(terms: list[str]) -> Iterable[str]:
    """The result of a call that has given terms."""
    if not terms:
        yield "return cow_result(frame->env, status, 0);"
        return
    yield "if (status < 0) return cow_failure(frame->env, status);"
    one = terms[0]
    if len(terms) > 1:
        one = f"enif_make_tuple({', '.join(['frame->env', str(len(terms)), *terms])})"
    yield f"return cow_result(frame->env, status, {one});"
