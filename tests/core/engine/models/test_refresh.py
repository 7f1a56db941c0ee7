"""Refreshing the models from disk, also during other loads and changes."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from app.core.engine.models.registry import Registry
from app.core.engine.models.repository import Repository
from app.core.engine.models.servable import Servable
from app.core.settings.model import ModelError, ModelSource
from tests.support.models.fake_models import load_fake_model
from tests.support.polling import wait_until_async


def discovered(root: Path) -> Sequence[ModelSource]:
    """Return a model for each folder."""
    return [ModelSource(name=folder.name, version="1", folder=folder) for folder in sorted(root.iterdir())]


def load(source: ModelSource) -> Servable:
    """Load a stand-in, or fail if the file begins with "broken"."""
    if (source.folder / "model").read_text().startswith("broken"):
        raise ModelError("broken on purpose")
    return load_fake_model(source)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Create a repository with one detector."""
    (tmp_path / "detector").mkdir()
    (tmp_path / "detector" / "model").write_text("first")
    return tmp_path


async def loaded(root: Path, load: Callable[[ModelSource], Servable] = load, **options: Any) -> Repository:
    """Return a repository whose detector is loaded."""
    repository = Repository(Registry(discovered(root)), lambda: discovered(root), load, **options)
    await repository.load("detector")
    await repository.refresh()
    return repository


def states(repository: Repository) -> dict[str, str]:
    """Return the state of every model."""
    return {registration.source.name: registration.state.value for registration in repository.registry.registrations}


def served(repository: Repository, name: str) -> Servable | None:
    """Return the servable of a model."""
    return repository.registry.versions(name)[0].servable


def test_refresh_loads_new_and_changed_models_and_removes_deleted_ones(root: Path) -> None:
    async def run() -> None:
        repository = await loaded(root)
        first = served(repository, "detector")
        await repository.refresh()
        assert served(repository, "detector") is first, "nothing changed"
        (root / "detector" / "model").write_text("second version")
        (root / "segmenter").mkdir()
        (root / "segmenter" / "model").write_text("new")
        await repository.refresh()
        assert served(repository, "detector") is not first
        assert states(repository) == {"detector": "READY", "segmenter": "READY"}
        (root / "segmenter" / "model").unlink()
        (root / "segmenter").rmdir()
        await repository.refresh()
        assert states(repository) == {"detector": "READY", "segmenter": "UNAVAILABLE"}
        assert not repository.registry.not_ready_reason

    asyncio.run(run())


def test_refresh_keeps_models_while_the_repository_is_unreadable(root: Path) -> None:
    def discover() -> Sequence[ModelSource]:
        if not root.is_dir():
            raise ModelError("not a folder")
        return discovered(root)

    async def run() -> None:
        repository = Repository(Registry(discovered(root)), discover, load)
        await repository.load("detector")
        await repository.refresh()
        moved = root.rename(root.with_name("away"))
        await repository.refresh()
        assert states(repository) == {"detector": "READY"}
        moved.rename(root)
        (root / "detector" / "model").write_text("second version")
        first = served(repository, "detector")
        await repository.refresh()
        assert served(repository, "detector") is not first

    asyncio.run(run())


def test_refresh_keeps_the_old_model_if_the_new_one_is_broken(root: Path) -> None:
    async def run() -> None:
        repository = await loaded(root)
        first = served(repository, "detector")
        (root / "detector" / "model").write_text("broken")
        await repository.refresh()
        assert served(repository, "detector") is first
        (root / "detector" / "model").write_text("mended")
        await repository.refresh()
        assert served(repository, "detector") not in (first, None)

    asyncio.run(run())


def test_refresh_loads_other_models_while_one_hangs(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    proceed = threading.Event()

    def load_blocked(source: ModelSource) -> Servable:
        if (source.folder / "model").read_text() == "hanging":
            assert proceed.wait(60)
        return load(source)

    async def run() -> None:
        repository = await loaded(root, load_blocked, timeout=0.1)
        first = served(repository, "detector")
        (root / "detector" / "model").write_text("hanging")
        await repository.refresh()
        assert served(repository, "detector") is first
        (root / "segmenter").mkdir()
        (root / "segmenter" / "model").write_text("new")
        await repository.refresh()
        await wait_until_async(lambda: states(repository) == {"detector": "READY", "segmenter": "READY"})
        slow_models = [
            vars(record)["model"] for record in caplog.records if record.getMessage() == "model takes long to load"
        ]
        assert slow_models.count("detector") == 1, "only the first refresh waits for it"
        (root / "detector" / "model").write_text("mended at last")
        proceed.set()
        await wait_until_async(lambda: served(repository, "detector") is not first)
        loaded_late = served(repository, "detector")
        await repository.refresh()
        assert served(repository, "detector") not in (first, loaded_late), "the later change is loaded too"

    asyncio.run(run())


def test_refresh_ignores_a_file_that_is_removed_meanwhile(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vanishing, is_file = root / "detector" / "model.tmp", Path.is_file
    vanishing.write_text("")

    def is_file_until_removed(path: Path) -> bool:
        found = is_file(path)
        if path == vanishing:
            path.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(Path, "is_file", is_file_until_removed)
    repository = Repository(Registry(discovered(root)), lambda: discovered(root), load)
    asyncio.run(repository.refresh())
    assert not vanishing.exists()
