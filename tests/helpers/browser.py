"""Headless Chromium over its DevTools pipe: loads a page, reads it, watches console and network, takes screenshots."""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

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


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Run a browser with a fresh profile."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    # The pipe's ends must be descriptors 3 and 4 of the browser.
    command = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
    run = subprocess.Popen(
        ["bash", "-c", command, "browser", chromium(), *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        pass_fds=(theirs_in, theirs_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Browser(ours_out, ours_in)
    finally:
        run.terminate()
        run.wait(20)
        os.close(ours_out)
        os.close(ours_in)
