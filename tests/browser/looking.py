"""Pages in a browser that must log nothing and load nothing from other hosts."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, ConsoleMessage, FloatRect, Locator, Page, Request, expect

CONTRAST = (Path(__file__).parent / "contrast.js").read_text()

Size = tuple[int, int]
Scheme = Literal["light", "dark"]

DESKTOP: Size = (1280, 900)
PHONE: Size = (360, 780)

# A server that is busy with other tests answers late.
_MILLISECONDS = 60_000
expect.set_options(timeout=_MILLISECONDS)


@contextmanager
def open_page(
    browser: Browser, url: str, *, size: Size = DESKTOP, scheme: Scheme = "light", expect_errors: bool = False
) -> Generator[Page]:
    """Open the page at `url` in a tab of its own, and check it afterwards.

    It must log no error or warning (unless `expect_errors`), open no browser dialog, and send requests only to its own
    server. All tabs share the context of `chromium`, because another one takes a second of processor time. The page
    stores nothing in the browser; what a test permitted is cleared.
    """
    context = browser.contexts[0]
    # Tabs that one tab opens share its process: a new process for each takes a second of processor time.
    with context.expect_page() as opened:
        context.pages[0].evaluate("() => void window.open('about:blank')")
    page = opened.value
    page.set_default_timeout(_MILLISECONDS)
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.emulate_media(color_scheme=scheme)
    messages: list[str] = []
    urls: list[str] = []

    def on_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            messages.append(message.text)

    def on_request(request: Request) -> None:
        urls.append(request.url)

    page.on("console", on_console)
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("dialog", lambda dialog: messages.append(dialog.message))
    page.on("request", on_request)
    try:
        page.goto(url)
        yield page
        origin = re.match(r"http://[^/]+/", f"{url}/")
        assert origin is not None
        foreign = [url for url in urls if not url.startswith((origin[0], f"blob:{origin[0]}", "data:"))]
        # pytest explains only assertions in the file of the test.
        assert foreign == [], foreign
        assert expect_errors or messages == [], messages
    finally:
        page.close()
        context.clear_permissions()


_UNTIL = """async ([milliseconds, argument]) => {{
  const deadline = performance.now() + milliseconds;
  for (;;) {{
    const value = await ({predicate})(argument);
    if (value) return value;
    if (performance.now() > deadline) throw new Error(`The condition does not hold after ${{milliseconds}} ms`);
    await new Promise(requestAnimationFrame);
  }}
}}"""


def wait_for_promise(page: Page, predicate: str, argument: object = None) -> Any:
    """Wait until an async function of JavaScript gives a true value, and return that value.

    `Page.wait_for_function` does not wait for it: it takes the promise itself for true.
    """
    return page.evaluate(_UNTIL.format(predicate=predicate), [_MILLISECONDS, argument])


def box_of(element: Locator) -> FloatRect:
    """Return the place and size of a visible element."""
    box = element.bounding_box()
    assert box is not None, element
    return box


def assert_fits(page: Page, size: Size) -> None:
    """Assert that nothing is wider than the window and that every text has enough contrast."""
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    result = page.evaluate(CONTRAST)
    assert result["checked"] > 0
    assert result["poor"] == []
