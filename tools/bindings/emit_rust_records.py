"""Writes the enums and the structs that calls fill in Rust, with the header's comments."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from tools.bindings import emit_rust, hosts
from tools.bindings.calls import PREFIX
from tools.bindings.emit_params import ENUMS
from tools.bindings.header import Header
from tools.bindings.header_comments import constant_texts
from tools.bindings.hosts import Layout, pascal

# The types of enums of results; ENUMS has those that options take.
RESULTS = {group: hosts.TYPES_OF_ENUMS[group] for group in ("FINISH", "TRAINING", "FIT")}
ORDERED = ("LOG",)
OPTIONAL = ("FINISH",)  # where NONE is no value, but None
RECORDS = {
    "stats": "Sizes and times of one generation.",
    "training_event": "An event of a training. Fields without a value are 0 or NaN.",
}
SERDE = '#[cfg_attr(feature = "serde", derive(serde::Serialize))]'


def records(public: Header, generated: str) -> str:
    """Return the text of bindings/rust/cowmlx/src/records.rs."""
    about = constant_texts(public.path)
    lines = [f"// {generated}", "", "//! Enums of options and results, and structs of results.", ""]
    lines += ["use crate::sys;"]
    for group, values in hosts.enumerations(public).items():
        if group in ENUMS or group in RESULTS:
            rows = [(f"{hosts.MACROS}{group}_{name}", name) for name in values]
            how = taken if group in ENUMS else given
            lines += ["", f"/// {hosts.ENUMS[group][1]}", *how(group, rows, about)]
    for layout in hosts.layouts(public):
        if layout.name in RECORDS:
            lines += ["", f"/// {RECORDS[layout.name]}", *struct(layout)]
    return "\n".join([*lines, ""])


def comment(text: str, name: str) -> Iterable[str]:
    """The comment of a member: a sentence, or the words of its name."""
    text = text or name.lower().replace("_", " ")
    text = f"{text[:1].upper()}{text[1:].rstrip('.')}."
    yield from (f"    /// {line}" for line in textwrap.wrap(text, 92, break_long_words=False))


def taken(group: str, rows: list[tuple[str, str]], about: dict[str, str]) -> Iterable[str]:
    """An enum of an option."""
    more = ", PartialOrd, Ord" if group in ORDERED else ""
    yield f"#[derive(Clone, Copy, Debug, PartialEq, Eq{more}, Hash)]"
    yield from ("#[repr(i32)]", "#[non_exhaustive]", f"pub enum {ENUMS[group]} {{")
    for constant, name in rows:
        yield from comment(about[constant], name)
        yield f"    {pascal(name)} = sys::{constant},"
    yield from ("}", "", f"impl From<{ENUMS[group]}> for i32 {{")
    yield f"    fn from(value: {ENUMS[group]}) -> i32 {{"
    yield from ("        value as i32", "    }", "}")


def given(group: str, rows: list[tuple[str, str]], about: dict[str, str]) -> Iterable[str]:
    """An enum of a result, which newer libraries may extend."""
    is_optional = group in OPTIONAL
    shown = [row for row in rows if not (is_optional and row[1] == "NONE")]
    yield from ("#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]", SERDE)
    yield from ("#[non_exhaustive]", f"pub enum {RESULTS[group]} {{")
    for constant, name in shown:
        yield from comment(about[constant], name)
        yield f"    {pascal(name)},"
    yield from ("    /// A value that this crate does not know.", "    Other(i32),", "}", "")
    yield f"impl {RESULTS[group]} {{"
    result, wrap = ("Option<Self>", "Some({})") if is_optional else ("Self", "{}")
    yield f"    pub(crate) fn from_code(code: i32) -> {result} {{"
    yield "        match code {"
    if is_optional:
        yield f"            sys::{hosts.MACROS}{group}_NONE => None,"
    for constant, name in shown:
        yield f"            sys::{constant} => {wrap.format(f'Self::{pascal(name)}')},"
    yield f"            other => {wrap.format('Self::Other(other)')},"
    yield from ("        }", "    }", "}")


def struct(layout: Layout) -> Iterable[str]:
    """A struct that a call fills."""
    raw = f"sys::{PREFIX}{layout.name}"
    members = [member for member in layout.members if member.name != "struct_size"]
    yield from ("#[derive(Clone, Copy, Debug, PartialEq)]", SERDE, "#[non_exhaustive]")
    yield f"pub struct {pascal(layout.name)} {{"
    for member in members:
        type_ = RESULTS.get(member.enumeration, emit_rust.BASE.get(member.type, member.type))
        yield from comment(member.about, member.name)
        yield f"    pub {member.name}: {type_},"
    yield from ("}", "", f"impl {pascal(layout.name)} {{", "    /// What a call fills.")
    yield f"    pub(crate) fn raw() -> {raw} {{"
    yield "        // SAFETY: all zeros is a value of it."
    yield f"        let zeros: {raw} = unsafe {{ std::mem::zeroed() }};"
    yield f"        {raw} {{ struct_size: size_of::<{raw}>(), ..zeros }}"
    yield from (
        "    }",
        "",
        f"    pub(crate) fn from_raw(raw: &{raw}) -> Self {{",
        "        Self {",
    )
    for member in members:
        read = f"raw.{member.name}"
        if member.enumeration in RESULTS:
            read = f"{RESULTS[member.enumeration]}::from_code({read})"
        yield f"            {member.name}: {read},"
    yield from ("        }", "    }", "}")
