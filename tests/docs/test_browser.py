"""The site in a real browser: it renders, finds, complains of nothing and asks nobody else."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.browser import Browser, NoBrowserError, installed

PAGES = ["index.html", "getting-started/c.html", "guides/performance.html", "reference/index.html"]
WIDTHS = {"desktop": 1280, "phone": 390}


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files without a word."""

    def log_message(self, *_):
        pass


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    """Where the site is served."""
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory) -> Iterator[Browser]:
    """A browser for all tests, since it takes seconds to start."""
    path = installed()
    if not path:
        pytest.skip("chromium is not installed")
    try:
        browser = Browser(path, tmp_path_factory.mktemp("browser") / "profile")
    except NoBrowserError as error:
        pytest.skip(str(error))
    yield browser
    browser.close()


@pytest.fixture
def browser(chromium) -> Browser:
    """It, with a page that knows of no other test."""
    chromium.renew()
    return chromium


def settle(browser: Browser) -> None:
    """Wait until the theme's script has run."""
    browser.wait_for("document.body.dataset.mdColorScheme && document.fonts.status === 'loaded'")


def test_pages_render_without_complaint_or_foreign_request(browser, address):
    for page in PAGES:
        browser.open(f"{address}/{page}")
        settle(browser)
        assert browser.evaluate("document.querySelector('h1').offsetHeight") > 0
    foreign = [url for url in browser.requests if not url.startswith((address, "data:"))]
    assert len(browser.requests) > len(PAGES)
    assert foreign == []
    assert browser.complaints == []


def test_a_complaint_and_a_foreign_request_would_be_seen(browser, address):
    browser.open(f"{address}/index.html")
    browser.evaluate("console.error('oh'); new Image().src = 'http://localhost:1/x.png'; 1")
    browser.wait_for("performance.getEntriesByName('http://localhost:1/x.png').length")
    assert "http://localhost:1/x.png" in browser.requests
    assert any("oh" in complaint for complaint in browser.complaints)


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_nothing_is_wider_than_the_window(browser, address, width):
    """But for code and tables, which scroll in themselves."""
    for page in [*PAGES, "reference/generation.html"]:
        browser.open(f"{address}/{page}", width=width)
        settle(browser)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width, page


CLIPPED = (
    "[...document.querySelectorAll('pre > code')]"
    ".filter(code => code.scrollWidth > code.clientWidth).map(code => code.textContent)"
)


def test_code_fits_on_a_desktop(browser, address):
    for page in ("index.html", "getting-started/c.html"):
        browser.open(f"{address}/{page}")
        settle(browser)
        assert browser.evaluate(CLIPPED) == [], page


@pytest.mark.parametrize("page", ["guides/chat.html", "guides/embeddings.html"])
def test_a_tab_shows_its_language_in_every_set_and_its_code_fits(browser, address, page):
    browser.open(f"{address}/{page}")
    settle(browser)
    sets = browser.evaluate("document.querySelectorAll('.tabbed-set').length")
    shown = "[...document.querySelectorAll('.tabbed-block')].filter(tab => tab.offsetHeight)"
    for number, language in enumerate(("c", "cpp", "rust", "js", "go", "java", "python")):
        browser.evaluate(f"document.querySelectorAll('.tabbed-labels label')[{number}].click()")
        code = f"{shown}.filter(tab => tab.querySelector('.language-{language}')).length"
        browser.wait_for(f"{code} === {sets}")
        assert browser.evaluate(CLIPPED) == [], language


def test_dark_follows_the_system(browser, address):
    colours = set()
    for dark in (False, True):
        browser.open(f"{address}/index.html", dark=dark)
        settle(browser)
        colours.add(browser.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2


def test_search_finds_a_function(browser, address):
    browser.open(f"{address}/index.html?q=cow_mlx_context_fork")
    result = browser.wait_for("document.querySelector('.md-search-result__link')?.href")
    assert "reference/" in result
    assert browser.complaints == []


def test_search_works_from_disk(browser, site):
    """Without a server: a page opened as a file finds a page, which opens, from any folder."""
    for page in ("index.html", "getting-started/c.html"):
        browser.open(f"{(site / page).as_uri()}?q=cow_mlx_context_fork")
        found = browser.wait_for("document.querySelector('.md-search-result__link')?.href")
        assert found.startswith(f"{site.as_uri()}/reference/")
        browser.open(found)
        assert browser.wait_for("document.querySelector('h1').offsetHeight")
    assert [url for url in browser.requests if not url.startswith(("file:", "data:"))] == []
    assert browser.complaints == []


def test_both_spellings_find_the_page_on_models(browser, address):
    links = "[...document.querySelectorAll('.md-search-result__link')].map((one) => one.href)"
    for word in ("quantise", "quantize"):
        browser.open(f"{address}/index.html?q={word}")
        assert "guides/models.html" in browser.wait_for(f"{links}.join(' ')"), word
