"""Fixtures for every test, the profile of Hypothesis, and the folders whose tests are slow."""

import gc
import os
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import settings
from litestar import Litestar
from litestar.testing import TestClient

from app.core.plugins import registry
from app.core.settings.server import DEMO_MODELS
from tests.support.affected import affected_areas, changed_files, select
from tests.support.servers.apps import ALL_MODELS, app_with_models
from tests.support.servers.postgres import PostgresServer, run_postgres

# No deadline, because the machine may be busy. CI runs the same examples each time.
settings.register_profile("steady", deadline=None, derandomize="CI" in os.environ)
# For emulated processors: `make test-processors`.
settings.register_profile("brief", deadline=None, derandomize=True, max_examples=10)
settings.load_profile("steady")


_TESTS = Path(__file__).parent
SLOW = tuple(
    _TESTS / name
    for name in (
        "plugins/transformers/torch", "browser", "clients", "fixtures", "fuzz", "platform", "plugins/ray",
        "conformance/test_schema.py", "core/proto/test_proto.py", "plugins/layouts/test_exporters.py",
    )
)  # fmt: skip
"""Folders and files that need packages of `make test-slow`, or a minute of CPU."""

RARE = tuple(
    _TESTS / name
    for name in (
        "clients", "fuzz", "conformance/test_schema.py", "deploy/test_proxies.py", "installed/test_extras.py",
        "plugins/ray/test_ray_serve.py",
        "deploy/test_image.py", "browser/test_accessibility.py", "faults/test_soak.py",
        "plugins/conformance/test_deliberate_faults.py", "plugins/conformance/test_foreign_servers.py",
        "plugins/transformers/torch/test_command.py", "plugins/transformers/torch/test_timm.py",
        "plugins/layouts/test_exporters.py",
        "plugins/isolation/test_server.py", "plugins/recording/test_truth_kill.py",
        "plugins/evaluation/truths/test_labelling_round.py", "plugins/recording/stores/test_migrations.py",
        "core/server/test_many_connections.py",
    )
)  # fmt: skip
"""Foreign clients, Ray's matrix, extras, malformed requests, and files that take half a minute: `make test-all`."""

LONGEST = tuple(
    _TESTS / name
    for name in (
        "plugins/ray/test_ray_serve.py", "clients/test_foreign_clients.py", "browser", "installed/test_readme.py",
        "installed/test_extras.py", "plugins/transformers/torch", "deploy/test_image.py", "faults/test_stopping.py",
        "plugins/conformance/test_deliberate_faults.py", "test_distribution.py", "plugins/isolation/test_server.py",
        "plugins/evaluation/test_command.py", "plugins/recording/test_recording_server.py",
        "core/server/test_process.py", "faults/test_soak.py", "faults/test_surroundings.py",
    )
)  # fmt: skip
"""Files and folders that take longest: at the end no worker waits long."""

_TOGETHER = {
    "browser": ("tests/browser/",),
    "torch": (
        "tests/plugins/transformers/", "tests/plugins/openai/test_chat.py", "tests/plugins/openai/test_tools.py",
        "tests/fixtures/",
        "tests/core/runtimes/python/test_score_and_mask_answers.py", "tests/core/runtimes/python/test_recipes.py",
        "tests/plugins/authoring/test_predict.py",
        "tests/core/runtimes/onnxruntime/images/test_resampling.py",
    ),
}  # fmt: skip
"""Files that one worker runs, because they share a browser and servers, or the import of torch and transformers."""


# Thousands of tests are in hundreds of files.
@cache
def _order(path: Path) -> int:
    return next((index for index, longest in enumerate(LONGEST) if path.is_relative_to(longest)), len(LONGEST))


@cache
def _is_slow(path: Path) -> bool:
    return any(path.is_relative_to(slow) for slow in SLOW)


@cache
def _is_rare(path: Path) -> bool:
    return any(path.is_relative_to(rare) for rare in RARE)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave the modules and tests, which live to the end, out of every garbage collection: it would visit millions."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip the import of modules that have no test of this run: it costs more than the quick tests of a folder."""
    expression, slow = config.option.markexpr, _is_slow(collection_path)
    if expression == "not slow":
        return slow or None
    if expression == "slow and not rare" and collection_path in RARE:
        return True
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    return (
        expression in ("slow", "slow and not rare")
        and is_test
        and not slow
        and "mark.slow" not in collection_path.read_text()
    ) or None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--affected``, which CI uses for the slow tests."""
    parser.addoption("--affected", action="store_true", help="run only the slow tests that the last change needs")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests in slow folders, begin with the longest, and leave out those that ``--affected`` does not need."""
    items.sort(key=lambda item: _order(item.path))
    for item in items:
        if _is_slow(item.path):
            item.add_marker(pytest.mark.slow)
        if _is_rare(item.path):
            item.add_marker(pytest.mark.rare)
    if config.getoption("affected") and (files := changed_files()) is not None:
        requires = {name: plugin.requires for name, plugin in registry().loaded.items()}
        tests = [
            (item, PurePosixPath(item.path.relative_to(_TESTS))) for item in items if item.get_closest_marker("slow")
        ]
        kept = select(tests, affected_areas(files, requires))
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    """Give files that share something expensive to one worker."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            groups = (name for name, paths in _TOGETHER.items() if any(path in file for path in paths))
            return next(groups, file)

    return Scheduling(config, log)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Run a PostgreSQL server."""
    with run_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def small_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Link the trained fixture models but the vision-language model, which imports torch: servers start much faster."""
    folder = tmp_path_factory.mktemp("small")
    for model in DEMO_MODELS.glob("*/"):
        if model.name not in ("face-detector", "vlm"):
            (folder / model.name).symlink_to(model)
    return folder


@pytest.fixture(scope="session")
def client() -> Iterator[TestClient[Litestar]]:
    """Serve every model of the tests over all protocols of the main port but chariot-v2."""
    with TestClient(app_with_models(ALL_MODELS)) as client:
        yield client


@pytest.fixture(scope="session")
def chariot_v2_client() -> Iterator[TestClient[Litestar]]:
    """Serve one detector over chariot-v2."""
    with TestClient(app_with_models(("detector",), "chariot-v2")) as client:
        yield client
