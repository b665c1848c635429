"""Makes the reference of the documentation from the C headers; a hook of MkDocs.

The headers stay the one source: the pages exist only while the site is built.
"""

from __future__ import annotations

import posixpath
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # MkDocs loads hooks by their path

from tools.bindings.header_comments import Comment, Entry, Manual, Section, read  # noqa: E402

PUBLIC, COMPAT = ROOT / "include/cow_mlx.h", ROOT / "include/cow_mlx_compat.h"
FOLDER = "reference"
WIDTH = 76

SPECIAL = re.compile(r"([\\`*_\[\]<>|#])")
CODE = re.compile(
    r"`[^`]+`"
    r"|\b(?:cow_mlx|COW_MLX)_\w+(?:\(\))?"
    r'|"[\w<|>./-]+"'  # "key"
    r"|\*[a-z]\w*\b"  # *length
    r"|\b_?[a-z]+\(\)|\b_init\b"  # exit()
    r"|\b[a-z]\w*(?:[._][a-z]\w*)+(?:\(\))?"  # max_tokens, params.timeout, config.json
    r"|\*\.safetensors"
)

NAMED = re.compile(r"(?<!\[)`(?P<name>(?:cow_mlx|COW_MLX)_\w+)(?:\(\))?`")


def slug(title: str) -> str:
    """The name of a page."""
    return title.lower().replace(" ", "-")


class Reference:
    """The pages of the reference.

    Args:
        public: the manual's header.
        compat: that of the older names.
    """

    def __init__(self, public: Manual, compat: Manual):
        self.public, self.compat = public, compat
        self.sections = [*public.sections, *compat.sections]
        self.places = {
            name: f"{slug(section.title)}.md#{name}"
            for section in self.sections
            for entry in section.entries
            for name in entry.names
        }

    def pages(self) -> dict[str, str]:
        """Markdown by path."""
        pages = {f"{FOLDER}/index.md": self.index()}
        for section in self.sections:
            pages[f"{FOLDER}/{slug(section.title)}.md"] = self.page(section)
        return pages

    def index(self) -> str:
        """The header's introduction, and a list of all functions."""
        parts = ["# The C header", *self.introduction(self.public), "## Functions"]
        for section in self.sections:
            rows = [
                [self.code(entry.names[0]), self.prose(first_sentence(entry.comment))]
                for entry in section.entries
                if entry.kind == "function"
            ]
            if rows:
                parts += [
                    f"### [{section.title}]({slug(section.title)}.md)",
                    table(["function", "meaning"], rows),
                ]
        return "\n\n".join(parts) + "\n"

    def introduction(self, manual: Manual) -> list[str]:
        """The comment at the top of a header, as Markdown."""
        parts: list[str] = []
        for block in re.split(r"\n(?:\s*\n)+", "\n".join(manual.introduction)):
            if re.fullmatch(r"[A-Z ]+", block.strip()):
                parts.append(f"## {block.strip().capitalize()}")
            elif block.startswith("    "):
                code = "\n".join(line[4:] for line in block.splitlines())
                parts.append(f"<!-- wrap: introduction -->\n\n```c\n{code}\n```")
            elif re.match(r"\s*1\. ", block):
                items = re.split(r"\n(?=\s*\d+\. )", block)
                numbered = [re.match(r"\s*(\d+)\. (.*)", item, re.S) for item in items]
                parts.append("\n".join(f"{m[1]}. {self.prose(m[2])}" for m in numbered if m))
            elif "Copyright" not in block and block.strip():
                parts.append(self.prose(block))
        return parts

    def page(self, section: Section) -> str:
        """One section of a header."""
        parts = [f"# {section.title}"]
        if section in self.compat.sections:
            parts += self.introduction(self.compat)
        if section.introduction:
            parts.append(self.prose(section.introduction))
        for entry in section.entries:
            parts += self.entry(entry)
        return "\n\n".join(parts) + "\n"

    def entry(self, entry: Entry) -> list[str]:
        """A heading, what is declared, and what is said of it."""
        comment = entry.comment
        if entry.kind == "constants":
            title = (comment.paragraphs or ["Constants"])[0].rstrip(".")
            title, *rest = re.split("[:,] ", title, maxsplit=1)
            anchor = slug(re.sub(r"[^\w ]", "", title))
            parts = [f"## {self.prose(title, links=False)} {{ #{anchor} }}"]
            said = [f"{text[0].upper()}{text[1:]}." for text in rest]
            parts += [self.prose(text) for text in [*said, *comment.paragraphs[1:]]]
            rows = [
                [f"`{name}`{{ #{name} }}", value, self.prose(text)]
                for name, value, text in entry.rows
            ]
            columns = 3 if any(text for *_, text in rows) else 2  # some speak for themselves
            head = ["constant", "value", "meaning"][:columns]
            return [*parts, table(head, [row[:columns] for row in rows])]
        name = entry.names[0]
        parts = [f"## `{name}` {{ #{name} }}"]
        if entry.declaration:
            parts.append(f"```c\n{wrapped(entry.declaration)}\n```")
        parts += [self.prose(paragraph) for paragraph in comment.paragraphs]
        if entry.rows:
            rows = [
                [f"`{member}`", self.code(type_), self.prose(text)]
                for member, type_, text in entry.rows
            ]
            parts.append(table(["member", "type", "meaning"], rows))
        if comment.params:
            rows = [[f"`{param}`", self.prose(text)] for param, text in comment.params]
            parts.append(table(["parameter", "meaning"], rows))
        if comment.result:
            parts.append(f"Returns {self.prose(comment.result)}.")
        if comment.retvals:
            rows = [[self.code(status), self.prose(text)] for status, text in comment.retvals]
            parts.append(table(["returns", "when"], rows))
        return parts

    def prose(self, text: str, links: bool = True) -> str:
        """A text of a comment as Markdown: names as code, with links to what they name."""
        parts, position = [], 0
        text = " ".join(text.split())
        for match in CODE.finditer(text):
            parts.append(SPECIAL.sub(r"\\\1", text[position : match.start()]))
            parts.append(self.code(match.group(), links))
            position = match.end()
        return "".join([*parts, SPECIAL.sub(r"\\\1", text[position:])])

    def code(self, text: str, links: bool = True) -> str:
        """A name or a type as code, with a link if it is one of ours."""
        text = text.strip("`")
        known = re.search(r"cow_mlx_\w+|COW_MLX_\w+", text)
        bare = text.removesuffix("()")
        name = known.group() if known else f"cow_mlx_{bare}"
        place = self.places.get(name)
        if name.endswith("_"):  # all constants that begin so
            place = next((self.places[n] for n in self.places if n.startswith(name)), None)
        if links and not place and known is None:
            place = self.places.get(f"{name}_params")  # "generation_params" and the like
        return f"[`{text}`]({place})" if links and place else f"`{text}`"


def first_sentence(comment: Comment) -> str:
    """The first sentence of a comment, or what stands before its first colon."""
    text = comment.paragraphs[0] if comment.paragraphs else ""
    match = re.match(r".*?[.;:](?=\s|$)", text)
    return match.group().rstrip(";:.") + "." if match else text


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def wrapped(declaration: str) -> str:
    """A declaration, a parameter to a line if it is long."""
    if len(declaration) <= WIDTH:
        return declaration
    opening = declaration.index(")(") + 1 if "typedef" in declaration else declaration.index("(")
    head, params = declaration[: opening + 1], declaration[opening + 1 :].removesuffix(");")
    depth, lines = 0, [""]
    for character in params:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            lines.append("")
        else:
            lines[-1] += character
    return head + "\n" + ",\n".join(f"    {line.strip()}" for line in lines) + ");"


@cache
def reference() -> Reference:
    """The reference of the headers as they are."""
    return Reference(read(PUBLIC), read(COMPAT, title="CowMLX names"))


def on_files(files: Any, config: Any) -> Any:
    """Add the pages to the site."""
    from mkdocs.structure.files import File

    for path, text in reference().pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def linked(markdown: str, page: str) -> str:
    """A guide in which names of the header lead to their entries."""

    def link(found: re.Match[str]) -> str:
        place = reference().places.get(found["name"])
        if not place:
            return found.group()
        target = posixpath.relpath(f"{FOLDER}/{place}", posixpath.dirname(page) or ".")
        return f"[{found.group()}]({target})"

    parts = re.split(
        r"(^```.*?^```$|^#[^\n]*$)", markdown, flags=re.S | re.M
    )  # blocks and headings
    parts[::2] = [NAMED.sub(link, part) for part in parts[::2]]
    return "".join(parts)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Link the names in the pages that people write."""
    path = page.file.src_uri
    return markdown if path.startswith(f"{FOLDER}/") else linked(markdown, path)
