"""Debian's Chromium, headless."""

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

# The sandbox needs rights that containers lack. Other flags stop requests to the browser's vendor.
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-fake-device-for-media-stream",
)


@contextmanager
def chromium() -> Generator[Browser]:
    """Run a browser with one context. Without one skip the test, but fail in CI: `make test-slow` installs it."""
    program = shutil.which("chromium")
    if program is None:
        missing = "Chromium is not installed: apt-get install chromium"
        if "CI" in os.environ:
            pytest.fail(missing)
        pytest.skip(missing)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_FLAGS)
        browser.new_context().new_page()
        try:
            yield browser
        finally:
            browser.close()
