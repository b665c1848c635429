"""Writes the params of Rust and C++, one member per field of the header, and the names of calls.

Fields that become a type of the language's own, such as arrays and callbacks, are written by hand:
in bindings/rust/cowmlx/src/params.rs, and in the headers of bindings/cpp/cow_mlx/.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field

from tools.bindings import emit_rust, hosts, own_names
from tools.bindings.calls import PREFIX
from tools.bindings.header import Header
from tools.bindings.hosts import Layout, Member

WIDTH = 100
# Enums of Rust, by the constants' name.
ENUMS = {
    group: hosts.TYPES_OF_ENUMS[group]
    for group in ("LOG", "ACTIVATIONS", "SPLIT", "OVERFLOW", "POOLING", "QUANTIZE")
}


@dataclass(frozen=True)
class Own:
    """What a struct of Rust has beside the generated members.

    Attributes:
        about: what the struct is.
        members: types by name, of members that are not C's.
        replaced: fields of C that these stand for.
        unset: generated members whose setters are written by hand.
        saved: whether the feature serde reads and writes it.
    """

    about: str
    members: dict[str, str] = field(default_factory=dict)
    replaced: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
    saved: bool = False


SAVED = "With the feature `serde` it is read and written, except for arrays."
RUST = {
    "runtime": Own("Options of the runtime.", {"log": "Option<Arc<Log>>"}),
    "model": Own(
        "Options of a load.",
        {"progress": "Option<Arc<LoadProgress<'a>>>"},
        unset=("workers", "secret_path"),
    ),
    "context": Own("Options of a context."),
    "generation": Own(
        "Options of a generation. Sampling follows mlx-lm; the manual has the order.\n\n"
        "The library checks the values: one that is out of range is "
        "[`InvalidArgument`](crate::Status::InvalidArgument) of the call that uses it.",
        {
            "bias": "Vec<(Token, f32)>",
            "grammar": "Option<Grammar>",
            "draft": "Option<Owner<'a, Model<'a>>>",
            "prompt_progress": "Option<Arc<PromptProgress<'a>>>",
            "logits_fn": "Option<Arc<LogitsFn<'a>>>",
        },
        replaced=("bias_tokens", "bias_values", "grammar_kind"),
    ),
    "embed": Own("Options of embeddings."),
    "rank": Own("Options of a ranking.", unset=("yes", "no")),
    "program": Own("Options of a program."),
    "run": Own("Options of a run of a program.", replaced=("submit", "donate")),
    "training": Own(
        f"Options of a training. {SAVED}",
        {"initial": "Vec<(String, sys::cow_mlx_array, PhantomData<&'a ()>)>"},
        replaced=("initial_names", "initial_arrays"),
        saved=True,
    ),
    "fit": Own(
        "Data, and the end of a fit: steps or epochs must be set, unless batches end. " + SAVED,
        {
            "inputs": "Vec<sys::cow_mlx_array>",
            "validation": "Vec<sys::cow_mlx_array>",
            "of": "PhantomData<&'a ()>",
        },
        replaced=("next_batch",),
        saved=True,
    ),
}


def nouns(public: Header) -> Iterable[tuple[str, Layout]]:
    """The params structs with options, by their noun."""
    for layout in hosts.layouts(public):
        noun, is_params, _ = layout.name.rpartition("_params")
        if is_params and len(layout.members) > 1:
            yield noun, layout


def fields(layout: Layout) -> list[Member]:
    """The members that are options: no sizes, counts and user_data."""
    return [
        member
        for member in layout.members
        if member.name != "struct_size" and not member.name.endswith(("_count", "user_data"))
    ]


def is_path(name: str) -> bool:
    """Whether a text is a path."""
    return name == "folder" or name.endswith(("_path", "_file", "_home"))


def plain(about: str) -> str:
    """A comment of the header for languages in which no NULL has to be passed."""
    about = re.sub(r"(?:, |; )?\bor NULL(?: \(default\))?", "", about)
    about = re.sub(r"(?<=\. )NULL(?: \(default\))?:", "Default:", about)
    about = re.sub(r"\bNULL(?: \(default\))?:", "default:", about)
    return about.replace(". Not NULL and a count of 0:", "; an empty list:")


# ------------------------------------------------------------------------------------- Rust


def rust(public: Header, generated: str) -> str:
    """Return the text of bindings/rust/cowmlx/src/params/generated.rs."""
    lines = [f"// {generated}", "", "use super::*;"]
    for noun, layout in nouns(public):
        own = RUST[noun]
        left_out = {*own.members, *own.replaced}
        lines += rust_struct(noun, [m for m in fields(layout) if m.name not in left_out], own)
    return "\n".join([*lines, ""])


def rust_type(member: Member) -> str:
    """The type of a generated member."""
    if member.kind == "strings":
        return "Vec<String>"
    if member.kind == "string":
        return "PathBuf" if is_path(member.name) else "String"
    if member.kind != "scalar" or member.noun:
        raise ValueError(f"{member.name}: write its setter in params.rs, and name it in RUST")
    return ENUMS.get(member.enumeration, emit_rust.BASE.get(member.type, member.type))


def rust_doc(about: str) -> Iterable[str]:
    """A comment of the header as one of rustdoc."""
    about = re.sub(r"one of COW_MLX_(\w+)_", lambda m: f"one of [`{ENUMS[m[1]]}`]", plain(about))
    about = re.sub(r"(?<![`\w/.-])(\w+_\w+(?:\(\))?)(?![`\w/.])", r"`\1`", about)
    about = about.replace("SIZE_MAX", "usize::MAX")
    about = about[:1].upper() + about[1:] if not about.startswith("`") else about
    for line in textwrap.wrap(f"{about.rstrip('.')}.", 90, break_long_words=False):
        yield f"    /// {line}"


def rust_struct(noun: str, members: list[Member], own: Own) -> Iterable[str]:
    """One struct with its setters, its way to C and its Debug."""
    name = f"{noun.capitalize()}Params"
    borrows = "'a" in "".join(own.members.values())
    anonymous = "<'_>" if borrows else ""
    members = sorted(members, key=lambda member: member.kind != "scalar")
    yield ""
    yield from rust_members(name + "<'a>" * borrows, members, own)
    yield ""
    yield f"impl {name}{anonymous} {{"
    yield "    /// The library's defaults."
    yield "    pub fn new() -> Self {"
    yield "        Self::default()"
    yield "    }"
    for member in members:
        if member.name not in own.unset:
            yield ""
            yield from rust_doc(member.about)
            yield from setter(member)
    yield ""
    yield from rust_lowered(f"cow_mlx_{noun}_params", members)
    yield "}"
    yield ""
    yield f"impl fmt::Debug for {name}{anonymous} {{"
    yield "    /// The options that were set, except closures."
    yield "    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {"
    yield f'        let mut to = to.debug_struct("{name}");'
    for member in members:
        yield f'        shown(&mut to, "{member.name}", &self.{member.name});'
    yield "        to.finish_non_exhaustive()"
    yield "    }"
    yield "}"


def rust_members(name: str, members: list[Member], own: Own) -> Iterable[str]:
    """The struct itself."""
    serde = '#[cfg_attr(feature = "serde", {})]'
    for index, paragraph in enumerate(own.about.split("\n\n")):
        yield from ["///"] * bool(index)
        yield from (f"/// {line}" for line in textwrap.wrap(paragraph, 94))
    yield "#[derive(Clone, Default)]"
    if own.saved:
        yield serde.format("derive(serde::Serialize, serde::Deserialize)")
        yield serde.format("serde(default, deny_unknown_fields)")
    yield "#[must_use]"
    yield f"pub struct {name} {{"
    for member in members:
        if own.saved:
            yield "    " + serde.format('serde(skip_serializing_if = "Option::is_none")')
        yield f"    pub(super) {member.name}: Option<{rust_type(member)}>,"
    for member_name, type_ in own.members.items():
        if own.saved:
            yield "    " + serde.format("serde(skip)")
        yield f"    pub(super) {member_name}: {type_},"
    yield "}"


def rust_lowered(raw: str, members: list[Member]) -> Iterable[str]:
    """The function that makes a call with C's struct."""
    has_texts = any(member.kind != "scalar" for member in members)
    yield "    /// Make a call with the parameters in C's form, which live as long as the call."
    yield "    pub(crate) fn lowered<R>("
    yield "        &self,"
    yield f"        {'operation' if has_texts else '_operation'}: &str,"
    yield f"        own: impl FnOnce(&mut sys::{raw}),"
    yield f"        call: impl FnOnce(*const sys::{raw}) -> R,"
    yield "    ) -> Result<R> {"
    if has_texts:
        yield "        let mut texts = Texts::new(operation);"
    yield "        // SAFETY: struct and function belong together."
    yield "        let mut filled ="
    yield f"            unsafe {{ Filled::new(|raw, size| sys::{raw}_init(raw, size)) }};"
    yield f"        let raw: &mut sys::{raw} = &mut filled.raw;"
    for member in members:
        yield from (f"        {line}" for line in rust_lowering(member))
    yield "        own(raw);"
    yield "        Ok(call(filled.as_ptr()))"
    yield "    }"


def setter(member: Member) -> Iterable[str]:
    """The setter of a member."""
    name = member.name
    match member.kind:
        case "strings":
            head = f"    pub fn {name}<T: Into<String>>"
            taken = ["mut self", "texts: impl IntoIterator<Item = T>"]
            line = f"{head}({', '.join(taken)}) -> Self {{"
            rows = (f"        {each}," for each in taken)
            yield from [line] if len(line) <= WIDTH else [f"{head}(", *rows, "    ) -> Self {"]
            yield f"        self.{name} = Some(texts.into_iter().map(Into::into).collect());"
        case "string":
            yield f"    pub fn {name}(mut self, {name}: impl Into<{rust_type(member)}>) -> Self {{"
            yield f"        self.{name} = Some({name}.into());"
        case _:
            yield f"    pub fn {name}(mut self, {name}: {rust_type(member)}) -> Self {{"
            yield f"        self.{name} = Some({name});"
    yield "        self"
    yield "    }"


def rust_lowering(member: Member) -> Iterable[str]:
    """The statements that write a member into C's struct."""
    name = member.name
    match member.kind:
        case "strings":
            to = f"(raw.{name}, raw.{member.count}) ="
            value = f'texts.list("{name}", self.{name}.as_deref())?;'
            line = f"{to} {value}"
            yield from [line] if len(line) < WIDTH - 8 else [to, f"    {value}"]
        case "string":
            how = "path" if is_path(name) else "text"
            value = f'texts.{how}("{name}", self.{name}.as_deref())?;'
            line = f"raw.{name} = {value}"
            yield from [line] if len(line) < WIDTH - 8 else [f"raw.{name} =", f"    {value}"]
        case _:
            value = "value.into()" if member.enumeration in ENUMS else "value"
            yield f"if let Some(value) = self.{name} {{"
            yield f"    raw.{name} = {value};"
            yield "}"


# -------------------------------------------------------------------------------------- C++

# Fields that the C++ headers have in another form, by noun.
CPP = {
    "runtime": ("log",),
    "model": ("progress",),
    "generation": ("bias_tokens", "bias_values", "prompt_progress", "logits_fn"),
    "rank": (),
    "program": (),
    "run": ("submit", "donate"),
    "training": ("initial_names", "initial_arrays"),
    "fit": ("inputs", "validation", "next_batch"),
}
INITIAL = {"dry_sequence_breakers": r'{"\n", ":", "\"", "*"}'}


def cpp(public: Header, generated: str) -> str:
    """Return the text of bindings/cpp/cow_mlx/params.hpp."""
    head = [f"/* {generated} */", "#ifndef COW_MLX_PARAMS_HPP", "#define COW_MLX_PARAMS_HPP"]
    head += ["/* clang-format off */", "", "#include <string>", "#include <vector>", ""]
    head += ['#include "base.hpp"', "", "namespace cowmlx::detail {", ""]
    body = [
        line for noun, layout in nouns(public) if noun in CPP for line in cpp_struct(noun, layout)
    ]
    return "\n".join([*head, *body, "}  // namespace cowmlx::detail", "", "#endif", ""])


def cpp_struct(noun: str, layout: Layout) -> Iterable[str]:
    """The base of one struct of params."""
    name, raw = f"{noun.capitalize()}Fields", f"{PREFIX}{noun}_params"
    members = [member for member in fields(layout) if member.name not in CPP[noun]]
    yield f"struct {name} : protected {raw} {{"
    for member in members:
        yield from cpp_doc(member.about)
        yield f"  {cpp_member(member, raw)};"
    yield ""
    yield f"  {name}() {{ {raw}_init(this, sizeof({raw})); }}"
    yield ""
    yield " protected:"
    yield "  /* C's struct; texts keeps its lists. */"
    yield f"  {raw} lowered(const char* call, Texts& texts) const {{"
    yield f"    {raw} raw = *this;"
    if not any(member.kind != "scalar" for member in members):
        yield "    (void)call, (void)texts;"
    for member in members:
        if member.kind == "string":
            yield f'    raw.{member.name} = texts.optional({member.name}, call, "{member.name}");'
        elif member.kind == "strings":
            yield f'    raw.{member.name} = texts.list({member.name}, call, "{member.name}");'
            yield f"    raw.{member.count} = {member.name}.size();"
    yield "    return raw;"
    yield "  }"
    yield "};"
    yield ""


def cpp_member(member: Member, raw: str) -> str:
    """The declaration of a member."""
    match member.kind:
        case "string":
            return f"std::string {member.name}"
        case "strings":
            return f"std::vector<std::string> {member.name}{INITIAL.get(member.name, '')}"
        case "scalar":
            return f"using {raw}::{member.name}"
    raise ValueError(f"{raw}.{member.name}: write it in its header, and name it in CPP")


def cpp_doc(about: str) -> Iterable[str]:
    """The comment above a member."""
    if text := plain(about):
        first, *rest = textwrap.wrap(text, 92, break_long_words=False)
        yield f"  /** {first}{'' if rest else ' */'}"
        yield from (f"   *  {line}" for line in rest[:-1])
        yield from (f"   *  {line} */" for line in rest[-1:])


# ------------------------------------------------------------------------- Names, for errors


def rust_names(public: Header, generated: str) -> str:
    """Return the text of bindings/rust/cowmlx/src/names.rs."""
    lines = [f"// {generated}", "", "/// Names of the library's calls, and those of this crate."]
    lines += ["#[rustfmt::skip]", "pub(crate) const CALLS: &[(&str, &str)] = &["]
    lines += [
        f'    ("{call}", "{own}"),' for call, own in own_names.calls(own_names.RUST, public).items()
    ]
    return "\n".join([*lines, "];", ""])


def cpp_names(public: Header, generated: str) -> str:
    """Return the text of bindings/cpp/cow_mlx/names.hpp."""
    lines = [f"/* {generated} */", "#ifndef COW_MLX_NAMES_HPP", "#define COW_MLX_NAMES_HPP"]
    lines += ["/* clang-format off */", "", "namespace cowmlx::detail {", ""]
    lines += ["/* Names of the library's calls, and those of these headers. */"]
    lines += ["inline constexpr const char* call_names[][2] = {"]
    lines += [
        f'    {{"{call}", "{own}"}},'
        for call, own in own_names.calls(own_names.CPP, public).items()
    ]
    return "\n".join([*lines, "};", "", "}  // namespace cowmlx::detail", "", "#endif", ""])
