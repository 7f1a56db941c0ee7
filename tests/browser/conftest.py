"""One browser for the tests of this folder, and one server for those that change nothing in it."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import chromium
from tests.browser.programs import Programs, run_programs
from tests.browser.try_view import MODELS, SCAFFOLD
from tests.support.servers.server_process import run_server


# Not session scope: while Playwright runs, no other test of the process can run an event loop.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the fixture models and a starter model of each text task."""
    repository = tmp_path_factory.mktemp("repository")
    for model in MODELS.glob("*/"):
        (repository / model.name).symlink_to(model)
    for name in ("text_classification", "token_classification", "text_generation"):
        shutil.copytree(SCAFFOLD / name, repository / name, ignore=shutil.ignore_patterns("test_*"))
    with run_server("--model-repository", str(repository), "--allow-code") as process:
        yield process.address


@pytest.fixture(scope="package")
def programs() -> Iterator[Programs]:
    with run_programs() as programs:
        yield programs
