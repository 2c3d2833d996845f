"""The pages in a browser: silent, still, true to the plan, and within the width of a phone."""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from failing_plan import failing
from page_cases import MADE, infeasible, rich
from sweep_rows import X, Y, written
from worked_plan import small

from planner.cli.sweep_commands import plot
from planner.report.page.page import report_page

pytestmark = pytest.mark.slow

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
    "--disable-component-update", "--no-first-run", "--disable-extensions", "--hide-scrollbars",
    "--force-color-profile=srgb", "--remote-debugging-pipe",
)  # fmt: skip
PHONE, DESKTOP = (390, 844), (1280, 900)


def chromium() -> str:
    """Return the browser; install it where that can be done, else skip and say so."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None and os.geteuid() == 0 and shutil.which("apt-get"):
        how: dict[str, Any] = {"env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, "timeout": 600}
        for words in ("update -qq", "install -y -qq --no-install-recommends chromium"):
            subprocess.run(["apt-get", *words.split()], check=False, capture_output=True, **how)
        path = shutil.which("chromium")
    if path is None:
        pytest.skip("no Chromium here, and it cannot be installed; install Debian's package chromium to run this test")
    return path


class Browser:
    """One page of one browser."""

    def __init__(self, write: int, read: int) -> None:
        self.write, self.read, self.last, self.rest = write, read, 0, b""
        self.session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its answer; events that come before it are kept."""
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        message |= {"sessionId": self.session} if self.session else {}
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.last:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            got = os.read(self.read, 1 << 16)
            assert got, "the browser ended"
            self.rest += got
        message, _, self.rest = self.rest.partition(b"\0")
        return dict(json.loads(message))

    def open(self, page: Path, size: tuple[int, int] = DESKTOP) -> None:
        """Load a page at a size and wait until it stands."""
        screen = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size[0] < 600}
        self.ask("Emulation.setDeviceMetricsOverride", **screen)
        self.events.clear()
        self.ask("Page.navigate", url=page.resolve().as_uri())
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self._next())

    def value(self, expression: str) -> Any:
        """Return what an expression is in the page."""
        return self.ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def media(self, kind: str = "", scheme: str = "light") -> None:
        """Show the page as printed, or dark."""
        self.ask("Emulation.setEmulatedMedia", media=kind, features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, to: Path) -> None:
        """Take a picture of the whole page."""
        shot = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        to.write_bytes(base64.b64decode(shot["data"]))

    def complaints(self) -> list[Any]:
        """Return what the console and the log say, exceptions included, since the page was opened."""
        loud = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [e["params"] for e in self.events if e.get("method") in loud]

    def requests(self) -> list[str]:
        """Return the addresses that the page asked for."""
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]


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
    """Run one browser with a fresh profile for all tests."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    # The pipe's ends must be descriptors 3 and 4 of the browser.
    command = ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "browser", chromium(), *FLAGS]
    profile, quiet = f"--user-data-dir={tmp_path_factory.mktemp('profile')}", subprocess.DEVNULL
    ends = (theirs_in, theirs_out)
    run = subprocess.Popen([*command, profile, "about:blank"], pass_fds=ends, stdout=quiet, stderr=quiet)
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Browser(ours_out, ours_in)
    finally:
        run.terminate()
        run.wait(20)
        os.close(ours_out)
        os.close(ours_in)


@pytest.mark.parametrize("name", ["one", "three", "rich", "failing", "plot"])
def test_silent_still_and_not_too_wide(chrome, pages, name, tmp_path):
    """Nothing is complained of or asked for, no content is too wide, no text of a drawing lies on another or is cut."""
    for size in (PHONE, (768, 1024), (1024, 800), DESKTOP):
        chrome.open(pages[name], size)
        assert chrome.complaints() == []
        assert chrome.requests() == [pages[name].resolve().as_uri()]
        assert chrome.value("document.documentElement.scrollWidth") <= size[0], size
        assert name == "plot" or chrome.value("document.querySelectorAll('svg text').length") > 20
        assert name == "plot" or chrome.value(OVERPRINTED) == [], size
    chrome.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 20_000


def test_the_watch_sees_requests_and_overprints_and_the_policy_stops_them(chrome, pages, tmp_path):
    """The page's own policy stops what would be loaded; without it requests and names on each other are seen."""
    bad, picture = tmp_path / "bad.html", '<img src="https://example.invalid/x.png" alt="">'
    loads = f'{picture}<script>fetch("/y")</script>'
    bad.write_text(pages["one"].read_text().replace("<main", f"{loads}<main", 1))
    chrome.open(bad)
    assert any("Content Security Policy" in json.dumps(c) for c in chrome.complaints())
    assert chrome.value("document.images[0].naturalWidth") == 0
    texts = '<text x="5" y="20">one</text><text x="9" y="22">two</text><text x="90" y="60">far away</text>'
    bad.write_text(f'<!doctype html><svg viewBox="0 0 100 80" width="100">{texts}</svg>{picture}')
    chrome.open(bad)
    assert "https://example.invalid/x.png" in chrome.requests()
    assert chrome.value(OVERPRINTED) == ["cut: far away", "one | two"]


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


@pytest.mark.parametrize("name", ["one", "rich", "failing"])
def test_the_first_screen_is_a_brief(chrome: Browser, pages: dict[str, Path], name: str) -> None:
    """On a desktop verdict, date, the three figures, limits and risks end within the first screen."""
    chrome.open(pages[name], (1400, 900))
    parts = "[...document.querySelectorAll('.verdict, .headline, .limits, .risks')]"
    assert max(chrome.value(f"{parts}.map(e => e.getBoundingClientRect().bottom)")) <= 900
    assert chrome.value("document.querySelectorAll('.headline').length") == 3
    assert chrome.value("document.querySelectorAll('.risks li').length") >= 1
