"""Concurrent loads, unloads, changes and refreshes, some of them cancelled, end in a consistent state."""

import asyncio
import random
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from app.core.engine.models.registry import ModelState, Registry
from app.core.engine.models.repository import Repository
from app.core.engine.models.servable import Servable
from app.core.settings.model import ModelError, ModelSource
from tasks.inference.error import InferenceError
from tests.support.models.fake_models import load_fake_model

NAMES = ("detector", "segmenter", "teller")


class ModelFolders:
    """Write and load models, each a folder with one file, which may be broken.

    Args:
        root: The folder of the models.
        rng: The source of random delays.
    """

    def __init__(self, root: Path, rng: random.Random) -> None:
        self._root = root
        self._rng = rng
        self.content_by_servable: dict[Servable, str] = {}
        self.write(dict.fromkeys(NAMES, "first"))

    def write(self, contents: dict[str, str]) -> None:
        for name, content in contents.items():
            (self._root / name).mkdir(exist_ok=True)
            (self._root / name / "model").write_text(content)

    def discover(self) -> Sequence[ModelSource]:
        return [ModelSource(name=folder.name, version="1", folder=folder) for folder in sorted(self._root.iterdir())]

    def load(self, source: ModelSource) -> Servable:
        content = (source.folder / "model").read_text()
        for _ in range(self._rng.randrange(50)):
            time.sleep(0)  # let other threads run during a load
        if content.startswith("broken"):
            raise ModelError("broken on purpose")
        servable = load_fake_model(source)
        self.content_by_servable[servable] = content
        return servable


@pytest.mark.parametrize("seed", range(2))
def test_concurrent_repository_actions_end_with_the_latest_content_served(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    folders = ModelFolders(tmp_path, rng)
    registry = Registry(folders.discover())
    repository = Repository(registry, folders.discover, folders.load, timeout=30)
    inconsistent: list[object] = []
    finished = threading.Event()

    def check_registrations() -> None:
        while not finished.is_set():
            inconsistent.extend(
                registration
                for registration in registry.registrations
                if (registration.servable is None) == (registration.state is ModelState.READY)
            )

    async def run_random_steps() -> None:
        for step in range(12):
            name = rng.choice(NAMES)
            with suppress(InferenceError):
                match rng.randrange(5):
                    case 0:
                        await repository.load(name)
                    case 1:
                        await repository.unload(name)
                    case 2:
                        await repository.refresh()
                    case 3:
                        folders.write({name: f"{rng.choice(('broken', 'whole'))} {step}"})
                    case _:
                        cancelled_load = asyncio.create_task(repository.load(name))
                        await asyncio.sleep(0)
                        cancelled_load.cancel()
                        await asyncio.wait([cancelled_load])

    async def run() -> None:
        await repository.refresh()
        await asyncio.gather(*(run_random_steps() for _ in range(4)))
        folders.write(dict.fromkeys(NAMES, "the last word"))
        await repository.refresh()

    checker = threading.Thread(target=check_registrations)
    checker.start()
    try:
        asyncio.run(run())
    finally:
        finished.set()
        checker.join()
    assert inconsistent == []
    served = {registration.source.name: registration.servable for registration in registry.registrations}
    assert {
        name: folders.content_by_servable.get(servable) if servable else None for name, servable in served.items()
    } == dict.fromkeys(NAMES, "the last word")
