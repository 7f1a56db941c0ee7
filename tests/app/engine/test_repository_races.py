"""Models are loaded, unloaded, replaced and looked for all at once, by senders who leave: what is left is in order."""

import asyncio
import random
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from app.engine.registry import ModelState, Registry
from app.engine.repository import Repository
from app.engine.servable import Servable
from app.settings.model import ModelError, ModelSource
from tasks.exchange.error import InferenceError
from tests.support.stand_ins import load_stand_in

NAMES = ("detector", "segmenter", "teller")


class Disk:
    """Models, each a folder of one file, which may be broken.

    Args:
        root: has the folders.
        chance: of everything that happens.
    """

    def __init__(self, root: Path, chance: random.Random) -> None:
        self._root = root
        self._chance = chance
        self.made: dict[Servable, str] = {}
        self.put(dict.fromkeys(NAMES, "first"))

    def put(self, contents: dict[str, str]) -> None:
        for name, content in contents.items():
            (self._root / name).mkdir(exist_ok=True)
            (self._root / name / "model").write_text(content)

    def discover(self) -> Sequence[ModelSource]:
        return [ModelSource(name=each.name, version="1", folder=each) for each in sorted(self._root.iterdir())]

    def load(self, source: ModelSource) -> Servable:
        content = (source.folder / "model").read_text()
        for _ in range(self._chance.randrange(50)):
            time.sleep(0)  # other threads go on during a load
        if content.startswith("broken"):
            raise ModelError("broken on purpose")
        servable = load_stand_in(source)
        self.made[servable] = content
        return servable


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_done_at_once_the_last_word_is_served(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    disk = Disk(tmp_path, chance)
    registry = Registry(disk.discover())
    repository = Repository(registry, disk.discover, disk.load, patience=30)
    odd: list[object] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            odd.extend(
                each for each in registry.registrations if (each.servable is None) == (each.state is ModelState.READY)
            )

    async def act() -> None:
        for step in range(12):
            name = chance.choice(NAMES)
            with suppress(InferenceError):
                match chance.randrange(5):
                    case 0:
                        await repository.load(name)
                    case 1:
                        await repository.unload(name)
                    case 2:
                        await repository.refresh()
                    case 3:
                        disk.put({name: f"{chance.choice(('broken', 'whole'))} {step}"})
                    case _:
                        leaving = asyncio.create_task(repository.load(name))
                        await asyncio.sleep(0)
                        leaving.cancel()
                        await asyncio.wait([leaving])

    async def run() -> None:
        await repository.refresh()
        await asyncio.gather(*(act() for _ in range(4)))
        disk.put(dict.fromkeys(NAMES, "the last word"))
        await repository.refresh()

    looking = threading.Thread(target=look)
    looking.start()
    try:
        asyncio.run(run())
    finally:
        ended.set()
        looking.join()
    assert odd == []
    served = {each.source.name: each.servable for each in registry.registrations}
    assert {name: disk.made.get(servable) if servable else None for name, servable in served.items()} == dict.fromkeys(
        NAMES, "the last word"
    )
