"""One browser for the tests of this folder, and three servers: each start takes seconds of processor time."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.chromium import chromium
from tests.browser.looking import open_page
from tests.browser.programs import Programs, run_programs
from tests.browser.servers import (
    DRIFT_WINDOW,
    HTML_NAME,
    TEXT_MODELS,
    RecordingServer,
    StoppableServer,
    link_models,
    send_recorded,
    write_monitored,
    write_pose,
    write_versions,
)
from tests.browser.try_view import MODELS, expect_findings
from tests.installed.environments import linked_environment
from tests.plugins.acme.process import ENVIRONMENT
from tests.support.models.model_folders import write_model
from tests.support.servers.server_process import run_server


# Not session scope: while Playwright runs, no other test of the process can run an event loop.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the trained fixture models, a model of each text task, and one that finds keypoints; change nothing."""
    repository = tmp_path_factory.mktemp("repository")
    link_models(repository, *(model.name for model in MODELS.glob("*/") if model.name != "face-detector"))
    for name, code in TEXT_MODELS.items():
        write_model(repository / name, code, task_type=name.upper())
    write_pose(repository / "pose")
    program = linked_environment().command
    with run_server("--model-repository", str(repository), "--allow-code", program=program) as process:
        yield process.address


@pytest.fixture(scope="package")
def scene(browser: Browser, server: str) -> Iterator[Page]:
    """Show what the detector finds in its sample. A test that uses it leaves model, image and settings as they are."""
    with open_page(browser, f"{server}/#try?model=detector&sample=scene.jpg") as page:
        expect_findings(page, 5)
        yield page


@pytest.fixture(scope="package")
def changing_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoppableServer]:
    """Serve models that tests load and unload, one with a broken file, with drift, labelling tools and Acme's plugin.

    The drift of the model `monitored` is watched.
    """
    repository = tmp_path_factory.mktemp("repository")
    link_models(repository, "detector", "segmenter", "half_plus_two")
    shutil.copytree(MODELS / "half_plus_two", repository / HTML_NAME)
    shutil.copytree(MODELS / "classifier", repository / "torn")
    for file in (repository / "torn").rglob("*.onnx"):
        file.write_bytes(b"torn")
    write_monitored(repository / "monitored", tmp_path_factory.mktemp("baseline"))
    options = ("--drift", "--drift-window", str(DRIFT_WINDOW), "--drift-per-second", "1000", "--label-studio")
    acme = ("--plugins", "acme", "--acme-greeting", "Ahoy")
    server = StoppableServer("--model-repository", str(repository), *options, *acme, environment=ENVIRONMENT)
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="package")
def recording_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordingServer]:
    """Run a server that recorded 3 detections in the north, 2 classifications in the south and 1 rejection."""
    repository, folder = tmp_path_factory.mktemp("repository"), tmp_path_factory.mktemp("recorded")
    link_models(repository, "classifier", "detector", "segmenter")
    write_versions(repository / "versions")
    arguments = ("--allow-code", "--record", str(folder / "store.db"), "--record-images", str(folder / "images"))
    with run_server("--model-repository", str(repository), *arguments) as process:
        send_recorded(process.address)
        yield RecordingServer(process.address, repository / "versions")


@pytest.fixture(scope="package")
def programs() -> Iterator[Programs]:
    with run_programs() as programs:
        yield programs
