"""A page that is looked at, and that must neither complain nor ask anybody but its server."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect

CONTRAST = (Path(__file__).parent / "contrast.js").read_text()

Size = tuple[int, int]
Scheme = Literal["light", "dark"]

DESKTOP: Size = (1280, 900)
PHONE: Size = (360, 780)

# A server that other tests keep busy answers late.
_MILLISECONDS = 60_000
expect.set_options(timeout=_MILLISECONDS)


@contextmanager
def looking(
    browser: Browser, url: str, *, size: Size = DESKTOP, scheme: Scheme = "light", broken: bool = False
) -> Generator[Page]:
    """The page at `url`. Afterwards: it wrote no error or warning (unless it is `broken` on purpose), opened no dialog
    of the browser, and everything that it asked for came from its own server.
    """
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    context.set_default_timeout(_MILLISECONDS)
    page = context.new_page()
    complaints: list[str] = []
    asked: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    def requested(request: Request) -> None:
        asked.append(request.url)

    page.on("console", heard)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.on("request", requested)
    try:
        page.goto(url)
        yield page
        origin = re.match(r"http://[^/]+/", f"{url}/")
        assert origin is not None
        strangers = [each for each in asked if not each.startswith((origin[0], f"blob:{origin[0]}", "data:"))]
        # pytest explains only what stands in a test's own file.
        assert strangers == [], strangers
        assert broken or complaints == [], complaints
    finally:
        context.close()


def fits(page: Page, size: Size) -> None:
    """Nothing reaches beyond the width of the window, and every text can be read."""
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    found = page.evaluate(CONTRAST)
    assert found["looked"] > 0
    assert found["poor"] == []
