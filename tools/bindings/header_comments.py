"""Reads a header as its readers do: sections, and in each what is declared and said of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from tools.bindings.header import text_of

CHUNK = re.compile(
    r"/\*(?:.|\n)*?\*/"
    r"|#(?:.*\\\n)*.*"  # with the lines that continue it
    r"|(?:typedef struct \w+|enum) \{(?:.|\n)*?^\}[^;]*;"
    r"|[^\s/#][^;]*;",
    re.M,
)
SECTION = re.compile(r"/\* -{3,} (.+?) \*/")
TAG = re.compile(r"(?:^|(?<=\s))@(param|retval|return)\b")
MEMBER = re.compile(
    r"(?:/\*\*(?P<above>[^<].*?)\*/\s*)?(?P<declaration>[^;/]+);\s*(?:/\*\*<(?P<text>.*?)\*/)?",
    re.S,
)
ANNOTATION = re.compile(r" COW_MLX_(?:NULLABLE|DEFAULT\((?P<default>.*?)\)|ONE_OF\(\w+\))")
ENUMERATOR = re.compile(
    r"(?P<name>COW_\w+) = (?P<value>-?\d+),?\s*(?:/\*\*<(?P<text>.*?)\*/)?", re.S
)
REASON = re.compile(r"X\((?P<name>\w+), \"(?P<keys>[^\"]*)\", \"(?P<text>[^\"]*)\"\)")
DTYPE = re.compile(r"X\((?P<name>\w+), (?P<value>\d+), (?P<bytes>\d+)\)")
STATUS = re.compile(r"X\((?P<name>\w+), (?P<value>-?\d+), \"(?P<text>[^\"]*)\"\)")


@dataclass
class Comment:
    """What a comment says: paragraphs, and (name, text) for each parameter and status."""

    paragraphs: list[str] = field(default_factory=list)
    params: list[tuple[str, str]] = field(default_factory=list)
    retvals: list[tuple[str, str]] = field(default_factory=list)
    result: str = ""


@dataclass
class Entry:
    """A declaration, without the words that only a compiler needs.

    Attributes:
        kind: "function", "callback", "struct", "constants", "macro" or "handle".
        names: what is declared; several for constants.
        declaration: its text; empty for structs and constants, which have rows.
        comment: what is said of it.
        rows: (name, type or value, text) of members, enumerators or statuses.
    """

    kind: str
    names: list[str]
    declaration: str
    comment: Comment
    rows: list[tuple[str, str, str]] = field(default_factory=list)


@dataclass
class Section:
    """A part of a header under its own title."""

    title: str
    introduction: str = ""
    entries: list[Entry] = field(default_factory=list)


@dataclass
class Manual:
    """A header: the comment at its top, as lines, and its sections."""

    introduction: list[str]
    sections: list[Section]


def read(path: Path, title: str = "") -> Manual:
    """Read a header; ``title`` is that of a section for what stands under none."""
    text = text_of(path)
    top, _, rest = text.partition("*/")
    sections = [Section(title)]
    comment = ""
    for chunk in chunks(rest):
        if named := SECTION.match(chunk):
            sections.append(Section(named.group(1)))
        elif chunk.startswith("/**"):
            comment = chunk
        elif chunk.startswith("/*"):
            sections[-1].introduction = " ".join(lines_of(chunk)).strip()
        else:
            if entry := entry_of(chunk, comment_of(comment)):
                sections[-1].entries.append(entry)
            comment = ""
    return Manual(lines_of(top + "*/"), [section for section in sections if section.entries])


def constant_texts(path: Path) -> dict[str, str]:
    """The comments of enumerators, by name."""
    entries = [entry for section in read(path).sections for entry in section.entries]
    rows = [row for entry in entries if entry.kind == "constants" for row in entry.rows]
    return {name: text for name, _, text in rows}


def chunks(text: str) -> list[str]:
    """Comments, directives and declarations at the top level, each whole."""
    text = re.sub(r'extern "C" \{|^\}$', "", text, flags=re.M)
    return [match.group().strip() for match in CHUNK.finditer(text)]


def lines_of(comment: str) -> list[str]:
    """The lines of a comment without its stars."""
    body = re.sub(r"^/\*+<?|\*/$", "", comment.strip())
    return [re.sub(r"^\s*\* ?", "", line).rstrip() for line in body.splitlines()]


def comment_of(comment: str) -> Comment:
    """Split a comment into its parts."""
    said = Comment()
    for paragraph in re.split(r"\n\s*\n", "\n".join(lines_of(comment))):
        untagged, *tagged = TAG.split(paragraph)
        if untagged.strip():
            said.paragraphs.append(" ".join(untagged.split()))
        for tag, text in zip(tagged[::2], tagged[1::2], strict=True):
            words = " ".join(text.split())
            name, _, rest = words.partition(" ")
            if tag == "return":
                said.result = words
            else:
                getattr(said, f"{tag}s").append((name, rest))
    return said


def entry_of(text: str, comment: Comment) -> Entry | None:
    """What a declaration declares; None for what is none of the reader's business."""
    if text.startswith("#define COW_MLX_STATUSES(X)"):
        statuses = [(f"COW_MLX_{m['name']}", m["value"], m["text"]) for m in STATUS.finditer(text)]
        names = [row[0] for row in statuses]
        return Entry("constants", names, "", Comment(["Statuses."]), statuses)
    if text.startswith("#define COW_MLX_REASONS(X)"):
        rows = [(m["name"], m["keys"], m["text"]) for m in REASON.finditer(text)]
        said = Comment(["Reasons.", *comment.paragraphs])
        return Entry("constants", [row[0] for row in rows], "", said, rows)
    if text.startswith("#define COW_MLX_DTYPES(X)"):
        rows = [
            (f"COW_MLX_{m['name']}", m["value"], f"{m['bytes']} bytes")
            for m in DTYPE.finditer(text)
        ]
        return Entry("constants", [row[0] for row in rows], "", comment, rows)
    if text.startswith("#"):
        macro = re.match(r"#define (COW_MLX_\w+) (\S+)$", text)
        shown = macro and comment.paragraphs
        return Entry("macro", [macro[1]], text, comment) if macro and shown else None
    if re.fullmatch(r"struct \w+;", text):  # of another library
        return None
    if text.startswith("enum {"):
        rows = [(m["name"], m["value"], plain(m["text"])) for m in ENUMERATOR.finditer(text)]
        return Entry("constants", [row[0] for row in rows], "", comment, rows) if rows else None
    if struct := re.match(r"typedef struct (\w+) \{(.*)\} \w+;", text, re.S):
        rows = [member(match) for match in MEMBER.finditer(struct[2])]
        return Entry("struct", [struct[1]], "", comment, rows)
    declaration = " ".join(ANNOTATION.sub("", text).removeprefix("COW_MLX_API ").split())
    declaration = declaration.replace("( ", "(")
    if callback := re.match(r"typedef .*?\(\*(\w+)\)\(", declaration):
        return Entry("callback", [callback[1]], declaration, comment)
    if handle := re.match(r"typedef \w+ (\w+);", declaration):
        return Entry("handle", [handle[1]], declaration, comment)
    if function := re.match(r"[\w* ]*?\b(cow_mlx_\w+)\(", declaration):
        return Entry("function", [function[1]], declaration, comment)
    raise ValueError(f"{text!r} is not read here")


def member(found: re.Match[str]) -> tuple[str, str, str]:
    """Name, type and text of a member of a struct; the text ends with its default."""
    declaration = " ".join(found["declaration"].split())
    type_, name = ANNOTATION.sub("", declaration).rsplit(" ", 1)
    text = plain(found["above"] or found["text"])
    annotation = ANNOTATION.search(declaration)
    default = annotation["default"] if annotation else None
    if default not in (None, "NULL"):
        text += f"; default {spoken(default)}"
    return name, type_, text


def spoken(default: str) -> str:
    """A default as a reader has it: MiB, and constants without their prefix."""
    return re.sub(r"COW_MLX_[A-Z]+_", "", default).replace(" << 20", " MiB")


def plain(comment: str | None) -> str:
    """The text of a comment beside or above a member, without stars and line breaks."""
    return " ".join(re.sub(r"\n\s*\*", "\n", comment or "").split())
