"""One browser for the tests of this folder, and one server for those that change nothing in it."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import chromium
from tests.browser.programs import Programs, run_programs
from tests.support.servers.server_process import ROOT, run_server


# Not session scope: while Playwright runs, no other test of the process can run an event loop.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="package")
def server() -> Iterator[str]:
    """Serve the fixture models."""
    with run_server("--model-repository", str(ROOT / "fixtures" / "models")) as process:
        yield process.address


@pytest.fixture(scope="package")
def programs() -> Iterator[Programs]:
    with run_programs() as programs:
        yield programs
