"""The pages in a browser: silent, still, true to the plan, and within the width of a phone."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import DESKTOP, PHONE, Browser, browser
from failing_plan import failing
from page_cases import MADE, infeasible, rich
from sweep_rows import X, Y, written
from worked_plan import small

from planner.cli.sweep_commands import plot
from planner.report.page.page import report_page

pytestmark = pytest.mark.slow


UNFOLDED = "document.querySelectorAll('details').forEach(d => d.open = true)"
UNSEEN = """
[...document.querySelectorAll('data')].filter(d => d.getBoundingClientRect().height == 0).map(d => d.dataset.path)"""
# Names of a drawing that overlap by more than a line's edge, and those that are cut off at the drawing's own edge.
OVERPRINTED = """
[...document.querySelectorAll('svg')].flatMap(svg => {
  const whole = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
  const cut = texts.filter(([, b]) =>
    b.left < whole.left - 1 || b.right > whole.right + 1 || b.bottom > whole.bottom + 2);
  const over = (a, b, low, high) => Math.min(a[high], b[high]) - Math.max(a[low], b[low]);
  const pairs = texts.flatMap(([name, a], n) => texts.slice(n + 1).filter(([, b]) =>
    over(a, b, 'left', 'right') > 1 && over(a, b, 'top', 'bottom') > 2
  ).map(([other]) => `${name} | ${other}`));
  return [...cut.map(([name]) => `cut: ${name}`), ...pairs];
})"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    pages = {"one": [("worked", small())], "rich": [("rich", rich())]}
    pages["failing"] = [("failing", failing("restart", "warm-spares", "elastic"))]
    pages["three"] = [("a", small()), ("b", rich()), ("c", infeasible())]
    files = {name: folder / f"{name}.html" for name in (*pages, "plot")}
    for name, plans in pages.items():
        files[name].write_text(report_page(plans, MADE))
    plot(written(folder), X, Y, files["plot"], None, None, "", "min-min")
    return files


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Run one browser for all tests."""
    with browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.mark.parametrize("name", ["one", "three", "rich", "failing", "plot"])
def test_silent_still_and_not_too_wide(chrome, pages, name, tmp_path):
    """The console stays empty, nothing but the page is asked for, no content is wider than the screen, some is seen."""
    for size in (PHONE, (768, 1024), (1024, 800), DESKTOP):
        chrome.open(pages[name], size)
        assert chrome.complaints() == []
        assert chrome.requests() == [pages[name].resolve().as_uri()]
        assert chrome.value("document.documentElement.scrollWidth") <= size[0], size
    chrome.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 20_000


def test_the_policy_stops_requests(chrome: Browser, pages: dict[str, Path], tmp_path: Path) -> None:
    """A page that tried to load something would be stopped by its own policy, and the console would show it."""
    bad = tmp_path / "bad.html"
    loads = '<img src="https://example.invalid/x.png" alt=""><script>fetch("/y")</script>'
    bad.write_text(pages["one"].read_text().replace("<main", f"{loads}<main", 1))
    chrome.open(bad)
    assert any("Content Security Policy" in json.dumps(c) for c in chrome.complaints())
    assert chrome.value("document.images[0].naturalWidth") == 0


@pytest.mark.parametrize("name", ["one", "rich"])
def test_figures_on_the_page_are_seen(chrome: Browser, pages: dict[str, Path], name: str) -> None:
    """What the page has at each path of the plan is seen once unfolded, on a desktop and on a phone."""
    for size in (DESKTOP, PHONE):
        chrome.open(pages[name], size)
        chrome.value(UNFOLDED)
        assert chrome.value("document.querySelectorAll('data').length") > 60
        assert chrome.value(UNSEEN) == []


@pytest.mark.parametrize("name", ["rich", "three", "failing"])
def test_no_table_scrolls_sideways_on_a_phone(chrome: Browser, pages: dict[str, Path], name: str) -> None:
    """Under 480 px each cell of a wide table is a line with its column's name; tables keep their roles at any width."""
    wider = (
        "[...document.querySelectorAll('.scroll')].filter(t => t.scrollWidth > t.clientWidth + 1)"
        ".map(t => t.getAttribute('aria-label'))"
    )
    cell = (
        "(c => [getComputedStyle(c).display, getComputedStyle(c, '::before').content, c.role])"
        "(document.querySelector('.stack td'))"
    )
    chrome.open(pages[name], (360, 740))
    chrome.value(UNFOLDED)
    label = json.dumps(chrome.value("document.querySelector('.stack td').dataset.label"))
    assert chrome.value(wider) == []
    assert chrome.value(cell) == ["flex", label, "cell"]
    chrome.open(pages[name], (481, 800))
    chrome.value(UNFOLDED)
    assert chrome.value(cell) == ["table-cell", "none", "cell"]


@pytest.mark.parametrize(("name", "least"), [("rich", 6), ("failing", 5)])
def test_room_under_pictures_is_filled(chrome: Browser, pages: dict[str, Path], name: str, least: int) -> None:
    """On a desktop the left column of a part with tables by its pictures reaches as far down as its tables allow."""
    # It ends above the right one by less than the first of the right one's tables is high: else that would lie under
    # the pictures.
    chrome.open(pages[name], DESKTOP)
    script = """
[...document.querySelectorAll('.flow')].map(flow => {
  const middle = flow.getBoundingClientRect().left + flow.clientWidth / 2;
  const boxes = [...flow.children].map(c => c.getBoundingClientRect());
  const left = boxes.filter(b => b.left < middle), right = boxes.filter(b => b.left >= middle);
  const end = part => Math.max(...part.map(b => b.bottom));
  const top = Math.min(...right.map(b => b.top));
  const line = Math.max(0, ...right.filter(b => b.top < top + 5).map(b => b.height));
  return [flow.previousElementSibling.textContent, right.length ? end(right) - end(left) : 0, line];
})"""
    parts = chrome.value(script)
    assert len(parts) >= least
    for title, room, first in parts:
        assert room <= first + 40, title


def test_dark_and_print(chrome: Browser, pages: dict[str, Path]) -> None:
    """A reader who wants dark gets dark; paper is white, fits its page, and shows what a screen folds."""
    background = "getComputedStyle(document.body).backgroundColor"
    chrome.media(scheme="dark")
    chrome.open(pages["one"])
    assert chrome.value(background) == "rgb(21, 25, 28)"
    chrome.media("print", "dark")
    chrome.open(pages["one"], (794, 1123))
    assert chrome.value(background) == "rgb(255, 255, 255)"
    assert chrome.value("document.documentElement.scrollWidth") <= 794
    assert chrome.value(UNSEEN) == []
    chrome.media()
    chrome.open(pages["one"])
    assert chrome.value(background) == "rgb(255, 255, 255)"


@pytest.mark.parametrize("name", ["one", "three", "failing"])  # the second of three has all drawings of the rich plan
def test_names_in_drawings_never_overprint(chrome, pages, name):
    """No text of a drawing lies on another, and none is cut off at its edge."""
    for size in ((1400, 900), (400, 860)):
        chrome.open(pages[name], size)
        assert chrome.value("document.querySelectorAll('svg text').length") > 20
        assert chrome.value(OVERPRINTED) == [], size


def test_the_watch_sees_requests_and_overprints(chrome: Browser, tmp_path: Path) -> None:
    """Without the policy a picture from elsewhere is among the requests, and names on each other are seen."""
    bad = tmp_path / "bad.html"
    texts = '<text x="5" y="20">one</text><text x="9" y="22">two</text><text x="90" y="60">far away</text>'
    drawing = f'<svg viewBox="0 0 100 80" width="100">{texts}</svg>'
    bad.write_text(f'<!doctype html>{drawing}<img src="https://example.invalid/x.png" alt="">')
    chrome.open(bad)
    assert "https://example.invalid/x.png" in chrome.requests()
    assert chrome.value(OVERPRINTED) == ["cut: far away", "one | two"]


@pytest.mark.parametrize("name", ["one", "rich", "failing"])
def test_the_first_screen_is_a_brief(chrome: Browser, pages: dict[str, Path], name: str) -> None:
    """On a desktop verdict, date, the three figures, limits and risks end within the first screen."""
    chrome.open(pages[name], (1400, 900))
    parts = "[...document.querySelectorAll('.verdict, .headline, .limits, .risks')]"
    assert max(chrome.value(f"{parts}.map(e => e.getBoundingClientRect().bottom)")) <= 900
    assert chrome.value("document.querySelectorAll('.headline').length") == 3
    assert chrome.value("document.querySelectorAll('.risks li').length") >= 1
