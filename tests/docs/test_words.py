"""Words and phrases that no page and no code uses, since a reader stumbles over them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.paths import ROOT

# Patterns, and the plain words for them. Spaces stand for any white space and for the marks of
# comments, so a phrase is found across lines.
FORBIDDEN = {
    r"quantis\w+(?!\")": "quantized, quantize",
    r"vectoris\w+": "vectorized, vectorize",
    r"minimis\w+": "minimized, minimize",
    r"recognis\w+": "recognized, recognize",
    r"packed (?:weights|ones|or)|weights (?:are|that are not) packed|unpacks?": "quantized",
    r"perceptrons?": "MLP",
    r"whoever|somebody else's": "name the person or the program",
    r"(?:is|are|was|were) told": "the call reports, takes or receives",
    r"(?:which|that|it|and|info|page|call|library) tells (?!what)": "reports, lists or says",
    r"tells? (?:about|of|why|when|beforehand)": "describes, reports or says",
    r"tell (?:about|of|why|when|beforehand)": "describe, report or say",
    r"what (?:is|was) (?:held|there|drawn|trained|new|learnt)": "the noun",
    r"(?:goes|go|going) on (?!disk|\d)": "continues",
    r"(?:is|are|be|was|were) drawn (?:together|in the)": "sampled",
    r"guess(?:es|ed)?(?= (?:ahead|that|when|at))|guesses": "draft",
    r"as (?:long|far) as there can be|as many .{0,40}there can be": "too many",
    r"of (?:its|their|one's|his) own": "separate, or nothing",
    r"whatever (?:else )?runs": "regardless of load",
    r"which is what|is what says|that is what": "the fact itself",
    r"lies ready|lie ready": "is ready",
    r"no more then|then no more": "afterwards not",
    r"learnt": "trained, or learned",
    r"made anew": "built again",
    r"what only the whole": "features that need the full package",
}
PATTERNS = {
    re.compile(r"\b(?:" + pattern.replace(" ", r"(?:\s+\*?\s*)") + r")", re.IGNORECASE): better
    for pattern, better in FORBIDDEN.items()
}
# Names that are fixed by the API, by Python or by other programs.
NAMES = re.compile(
    r"\"(?:quantise|vectorisable|unpack)\"|`[^`\n]*`|\bunpack(?:_from)?\(|quantise(?=[\"'`])"
)
# Code, and tables that are written from results.
SKIPPED = r"```.*?```|<!-- (?:benchmarks|peers|kernels):begin -->.*?:end -->"
PAGES = sorted(
    [
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "include").rglob("*.h"),
        *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md")),
    ]
)
# Folders of code, whose comments, names and messages are read; and the endings of their files.
FOLDERS = ("benchmarks", "bindings", "cowmlx", "csrc", "examples", "tests", "tools")
CODE = {".c", ".cpp", ".go", ".h", ".hpp", ".java", ".js", ".md", ".mjs", ".pxi", ".py", ".pyx"}
CODE |= {".rs", ".swift", ".ex", ".exs"}
BUILT = {"build", "generated", "node_modules", "results", "target"}


def code_of(folder: str) -> list[Path]:
    """The files of a folder that people write."""
    return [
        path
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in CODE
        and not BUILT & set(path.relative_to(ROOT).parts)
        and path != Path(__file__)
    ]


def prose(path: Path) -> str:
    """The text of a page without its code; lines keep their numbers."""
    text = path.read_text()
    if path.suffix == ".md":
        text = re.sub(SKIPPED, lambda block: "\n" * block[0].count("\n"), text, flags=re.S)
    return NAMES.sub(lambda name: "x" * len(name[0]), text)


def found(text: str) -> list[tuple[int, str, str]]:
    """Line, words and better words of every hit."""
    return [
        (text.count("\n", 0, hit.start()) + 1, " ".join(hit[0].split()), better)
        for pattern, better in PATTERNS.items()
        for hit in pattern.finditer(text)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_plain_words(page: Path) -> None:
    name = page.relative_to(ROOT)
    hits = [f"{name}:{line}: {words!r}: {better}" for line, words, better in found(prose(page))]
    assert hits == [], "\n".join(hits)


@pytest.mark.parametrize("folder", FOLDERS)
def test_plain_words_in_code(folder: str) -> None:
    hits = [
        f"{path.relative_to(ROOT)}:{line}: {words!r}: {better}"
        for path in code_of(folder)
        for line, words, better in found(prose(path))
    ]
    assert hits == [], "\n".join(hits)


def test_words_are_found_across_the_lines_of_a_comment() -> None:
    assert found(" * The host is\n * told so.") == [
        (1, "is * told", "the call reports, takes or receives")
    ]
    assert found("a plain sentence") == []
