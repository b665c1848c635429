"""The built site: whole, without a dead link, and without anything from elsewhere."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest
from support.code_blocks import blocks_of
from support.paths import ROOT

DOCS = ROOT / "docs"
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}


@dataclass
class Page(HTMLParser):
    """What a page refers to, and what can be referred to in it."""

    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    blocks: int = 0

    def __post_init__(self):
        super().__init__()

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors.add(values.get("id") or "")
        self.blocks += tag == "pre"
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if tag in LOADED and values.get(LOADED[tag]) and values.get("rel") != "canonical":
            self.loaded.append(values[LOADED[tag]])


@pytest.fixture(scope="session")
def pages(site: Path) -> dict[Path, Page]:
    """Every page of the site."""
    pages = {}
    for path in sorted(site.rglob("*.html")):
        pages[path] = Page()
        pages[path].feed(path.read_text())
    return pages


def test_every_page_of_the_sources_is_built(site):
    sources = [path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")]
    assert len(sources) > 10
    assert all((site / path).exists() for path in sources)


def test_models_and_errors_stand_before_the_guides(pages, site):
    """What a newcomer needs first."""
    links = pages[site / "index.html"].links
    order = [links.index(f"{name}.html") for name in ("getting-started/install", "guides/models")]
    order += [links.index(f"{name}.html") for name in ("guides/errors", "guides/chat")]
    assert order == sorted(order)
    assert order[1] == order[0] + 1


def test_every_link_leads_somewhere(site, pages):
    dead = []
    for path, page in pages.items():
        base = f"/{path.relative_to(site)}"
        for link in page.links:
            if re.match(r"https?:", link):
                continue
            target, anchor = urldefrag(unquote(urljoin(base, link)))
            file = site / target.lstrip("/")
            if file.is_dir():
                file /= "index.html"
            if not file.exists() or (anchor and anchor not in pages[file].anchors):
                dead.append(f"{path.relative_to(site)}: {link}")
    assert sum(len(page.links) for page in pages.values()) > 500
    assert dead == []


def test_nothing_is_loaded_from_elsewhere(site, pages):
    outside = [
        f"{path.relative_to(site)}: {url}"
        for path, page in pages.items()
        for url in page.loaded
        if re.match(r"(\w+:)?//", url)
    ]
    for sheet in site.rglob("*.css"):
        urls = re.findall(r"(?:url\(|@import )[\"']?((?:https?:)?//[^\"')]+)", sheet.read_text())
        outside += [f"{sheet.relative_to(site)}: {url}" for url in urls]
    assert outside == []
    missing = [
        url
        for path, page in pages.items()
        for url in page.loaded
        if not (site / urljoin(f"/{path.relative_to(site)}", url).lstrip("/")).exists()
    ]
    assert missing == []


def test_no_code_block_escapes_the_tests(site, pages):
    """What the site shows as code is what the tests find in the page's source."""
    for source in sorted(DOCS.rglob("*.md")):
        name = source.relative_to(DOCS)
        found = blocks_of(source.read_text(), str(name))
        assert pages[site / name.with_suffix(".html")].blocks == len(found), name


def test_pages_hold_no_paths_of_this_machine(site):
    for path in [*site.rglob("*.html"), *site.rglob("*.json")]:
        assert str(ROOT) not in path.read_text(), path
