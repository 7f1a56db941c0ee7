"""Debian's Chromium, without a screen."""

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

# The sandbox needs rights that containers have not, and the rest looks for servers of its maker.
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
    """A running browser. Without one the test is skipped, but in CI, where `make test-slow` has installed it."""
    program = shutil.which("chromium")
    if program is None:
        missing = "Chromium is not installed: apt-get install chromium"
        if "CI" in os.environ:
            pytest.fail(missing)
        pytest.skip(missing)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_FLAGS)
        try:
            yield browser
        finally:
            browser.close()
