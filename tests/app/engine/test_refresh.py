"""What is served follows what lies on disk."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.engine.registry import Registry
from app.engine.repository import Repository
from app.engine.servable import Servable
from app.settings.model import ModelError, ModelSource
from tests.support.polling import wait_until_async
from tests.support.stand_ins import load_stand_in


def discovered(root: Path) -> Sequence[ModelSource]:
    """A model for each folder."""
    return [ModelSource(name=each.name, version="1", folder=each) for each in sorted(root.iterdir())]


def load(source: ModelSource) -> Servable:
    """A stand-in, unless the file says that it is broken."""
    if (source.folder / "model").read_text() == "broken":
        raise ModelError("broken on purpose")
    return load_stand_in(source)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository of one detector."""
    (tmp_path / "detector").mkdir()
    (tmp_path / "detector" / "model").write_text("first")
    return tmp_path


def states(repository: Repository) -> dict[str, str]:
    """The state of every model."""
    return {each.source.name: each.state.value for each in repository.registry.registrations}


def served(repository: Repository, name: str) -> Servable | None:
    """What answers for a model."""
    return repository.registry.versions(name)[0].servable


def test_new_changed_and_removed_models_are_noticed(root: Path) -> None:
    async def run() -> None:
        repository = Repository(Registry(discovered(root)), lambda: discovered(root), load)
        await repository.load("detector")
        await repository.refresh()
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
        assert not repository.registry.unready

    asyncio.run(run())


def test_a_repository_that_is_out_of_reach_leaves_its_models_serving(root: Path) -> None:
    def looked_for() -> Sequence[ModelSource]:
        if not root.is_dir():
            raise ModelError("not a folder")
        return discovered(root)

    async def run() -> None:
        repository = Repository(Registry(discovered(root)), looked_for, load)
        await repository.load("detector")
        await repository.refresh()
        away = root.rename(root.with_name("away"))
        await repository.refresh()
        assert states(repository) == {"detector": "READY"}
        away.rename(root)
        (root / "detector" / "model").write_text("second version")
        first = served(repository, "detector")
        await repository.refresh()
        assert served(repository, "detector") is not first

    asyncio.run(run())


def test_a_change_that_cannot_be_loaded_leaves_the_old_model_serving(root: Path) -> None:
    async def run() -> None:
        repository = Repository(Registry(discovered(root)), lambda: discovered(root), load)
        await repository.load("detector")
        await repository.refresh()
        first = served(repository, "detector")
        (root / "detector" / "model").write_text("broken")
        await repository.refresh()
        assert served(repository, "detector") is first
        (root / "detector" / "model").write_text("mended")
        await repository.refresh()
        assert served(repository, "detector") not in (first, None)

    asyncio.run(run())


def test_a_model_that_hangs_while_it_is_loaded_does_not_keep_the_others_from_being_followed(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    let_go = threading.Event()

    def hanging(source: ModelSource) -> Servable:
        if (source.folder / "model").read_text() == "hanging":
            assert let_go.wait(60)
        return load(source)

    async def run() -> None:
        repository = Repository(Registry(discovered(root)), lambda: discovered(root), hanging, patience=0.1)
        await repository.load("detector")
        await repository.refresh()
        first = served(repository, "detector")
        (root / "detector" / "model").write_text("hanging")
        await repository.refresh()
        assert served(repository, "detector") is first
        (root / "segmenter").mkdir()
        (root / "segmenter" / "model").write_text("new")
        await repository.refresh()
        assert states(repository) == {"detector": "READY", "segmenter": "READY"}
        late = [vars(each)["model"] for each in caplog.records if each.getMessage() == "model takes long to load"]
        assert late == ["detector"], "it is waited for once, and not with every look"
        (root / "detector" / "model").write_text("mended at last")
        let_go.set()
        await wait_until_async(lambda: not repository.following)
        hung = served(repository, "detector")
        await repository.refresh()
        assert served(repository, "detector") not in (first, hung), "what changed meanwhile is looked at afterwards"

    asyncio.run(run())
