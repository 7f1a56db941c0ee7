"""Loading and unloading, with stand-ins; over files and under traffic it is tested with the V2 routes."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from app.engine.registry import ModelState, Registration, Registry
from app.engine.repository import UNLOADED, Repository
from app.engine.servable import Servable
from app.settings.model import ModelError, ModelSource
from tasks.exchange.error import ErrorKind, InferenceError
from tests.support.stand_ins import load_stand_in


def source(name: str = "detector", version: str = "1") -> ModelSource:
    return ModelSource(name=name, version=version, folder=Path(name))


ONE, TWO, OTHER = source(), source(version="2"), source("classifier")


def repository(
    *found: ModelSource,
    served: Sequence[ModelSource] = (ONE,),
    load: Callable[[ModelSource], Servable] = load_stand_in,
) -> Repository:
    """Of the models `found` on disk those `served` are loaded."""
    registry = Registry(served)
    for each in served:
        registry.load(each, load_stand_in)
    return Repository(registry, lambda: found, load)


def refusal(made: Repository, what: str, name: str) -> InferenceError:
    with pytest.raises(InferenceError) as caught:
        asyncio.run(getattr(made, what)(name))
    return caught.value


def states(found: Sequence[Registration]) -> list[tuple[str, str, ModelState, str]]:
    return [(each.source.name, each.source.version, each.state, each.reason) for each in found]


def test_the_index_has_what_is_served_and_what_only_lies_on_disk() -> None:
    made = repository(ONE, TWO, OTHER)
    assert states(asyncio.run(made.index())) == [
        ("detector", "1", ModelState.READY, ""),
        ("detector", "2", ModelState.UNAVAILABLE, "not loaded"),
        ("classifier", "1", ModelState.UNAVAILABLE, "not loaded"),
    ]
    assert not made.registry.unready


def test_a_load_takes_every_version_and_drops_those_that_are_gone() -> None:
    made = repository(TWO, served=(ONE,))
    asyncio.run(made.load("detector"))
    assert [each.source for each in made.registry.versions("detector")] == [TWO]
    made = repository(ONE, TWO)
    asyncio.run(made.load("detector"))
    assert [each.source for each in made.registry.versions("detector")] == [TWO, ONE]
    assert made.registry.find("detector").source is TWO


def test_a_load_that_fails_changes_nothing() -> None:
    def load(of: ModelSource) -> Servable:
        if of is TWO:
            raise ModelError("cut short")
        return load_stand_in(of)

    made = repository(ONE, TWO, load=load)
    before = made.registry.find("detector")
    error = refusal(made, "load", "detector")
    assert error.kind is ErrorKind.MODEL_NOT_READY
    assert str(error) == "Failed to load 'detector': cut short"
    assert made.registry.find("detector") is before


@pytest.mark.parametrize("what", ["load", "unload"])
def test_names_that_nothing_has(what: str) -> None:
    error = refusal(repository(ONE), what, "nobody")
    assert error.kind is ErrorKind.MODEL_NOT_FOUND
    assert "'nobody'" in str(error)


def test_unloading_keeps_the_name_and_does_not_spoil_readiness() -> None:
    made = repository(ONE, OTHER, served=(ONE, OTHER))
    asyncio.run(made.unload("detector"))
    assert states(asyncio.run(made.index())) == [
        ("classifier", "1", ModelState.READY, ""),
        ("detector", "1", ModelState.UNAVAILABLE, UNLOADED),
    ]
    assert not made.registry.unready
    with pytest.raises(InferenceError) as caught:
        made.registry.find("detector")
    assert caught.value.kind is ErrorKind.MODEL_NOT_READY
    asyncio.run(made.load("detector"))
    assert made.registry.find("detector").state is ModelState.READY


def test_the_old_version_answers_until_the_new_one_is_ready() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def load(of: ModelSource) -> Servable:
        begun.set()
        assert go_on.wait(60)
        return load_stand_in(of)

    made = repository(ONE, load=load)
    before = made.registry.find("detector").servable

    async def run() -> None:
        loading = asyncio.create_task(made.load("detector"))
        assert await asyncio.to_thread(begun.wait, 30)
        assert made.registry.find("detector").servable is before
        unloading = asyncio.create_task(made.unload("detector"))
        go_on.set()
        await asyncio.gather(loading, unloading)

    asyncio.run(run())
    assert made.registry.versions("detector")[0].reason == UNLOADED, "one after the other"


def test_a_repository_that_cannot_be_read_is_empty() -> None:
    def discover() -> Sequence[ModelSource]:
        raise ModelError("gone")

    made = Repository(Registry([ONE]), discover, load_stand_in)
    assert [each.source for each in asyncio.run(made.index())] == [ONE]
    assert refusal(made, "load", "detector").kind is ErrorKind.MODEL_NOT_FOUND


class _Hanging:
    """Loads every model but one, which never comes to its end until it is let go."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.begun, self.let_go = threading.Event(), threading.Event()

    def __call__(self, of: ModelSource) -> Servable:
        if of.name == self._name:
            self.begun.set()
            assert self.let_go.wait(60)
        return load_stand_in(of)


def test_a_model_that_hangs_while_it_is_loaded_holds_up_no_other() -> None:
    load = _Hanging("detector")
    made = repository(ONE, OTHER, served=(ONE, OTHER), load=load)
    before = made.registry.find("classifier").servable

    async def run() -> None:
        loading = asyncio.create_task(made.load("detector"))
        assert await asyncio.to_thread(load.begun.wait, 30)
        await asyncio.wait_for(made.load("classifier"), 10)
        assert made.registry.find("classifier").servable is not before
        await asyncio.wait_for(made.unload("classifier"), 10)
        assert not loading.done()
        load.let_go.set()
        await loading

    asyncio.run(run())


@pytest.mark.parametrize("what", ["load", "unload"])
def test_a_model_that_hangs_while_it_is_loaded_is_not_waited_for_for_ever(what: str) -> None:
    load = _Hanging("detector")
    made = repository(ONE, load=load)
    made = Repository(made.registry, lambda: [ONE], load, patience=0.05)

    async def run() -> None:
        loading = asyncio.create_task(made.load("detector"))
        assert await asyncio.to_thread(load.begun.wait, 30)
        with pytest.raises(InferenceError, match="still being loaded") as caught:
            await getattr(made, what)("detector")
        assert caught.value.kind is ErrorKind.MODEL_NOT_READY
        assert made.registry.find("detector").state is ModelState.READY, "what served goes on serving"
        load.let_go.set()
        await loading

    asyncio.run(run())


@pytest.mark.parametrize(
    "raised", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), MemoryError(), StopIteration()]
)
def test_an_order_to_stop_that_a_model_gives_while_it_is_loaded_stops_nothing(raised: BaseException) -> None:
    def load(_: ModelSource) -> Servable:
        raise raised

    made = repository(ONE, load=load)
    error = refusal(made, "load", "detector")
    assert error.kind is ErrorKind.MODEL_NOT_READY
    assert type(raised).__name__ in str(error)
    assert made.registry.find("detector").state is ModelState.READY


def test_senders_are_not_told_where_the_server_keeps_its_models(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "a secret place" / "detector"
    placed = ModelSource(name="detector", version="1", folder=folder)

    def load(of: ModelSource) -> Servable:
        raise ModelError(f"{of.folder / 'model.onnx'} is cut short")

    made = repository(placed, load=load)
    assert str(refusal(made, "load", "detector")) == "Failed to load 'detector': model.onnx is cut short"
    assert [getattr(each, "reason", "") for each in caplog.records] == [f"{folder / 'model.onnx'} is cut short"]
    registry = Registry([placed])
    found = registry.load(placed, load)
    assert found.reason == "model.onnx is cut short"
    assert found.detail == f"{folder / 'model.onnx'} is cut short"
    assert "secret" not in registry.unready


def test_a_model_that_was_unloaded_while_it_was_loaded_first_stays_unloaded() -> None:
    load = _Hanging("detector")
    registry = Registry([ONE])
    made = Repository(registry, lambda: [ONE], load)

    async def run() -> None:
        first = asyncio.create_task(asyncio.to_thread(registry.load, ONE, load))
        assert await asyncio.to_thread(load.begun.wait, 30)
        await made.unload("detector")
        load.let_go.set()
        await first

    asyncio.run(run())
    assert registry.versions("detector")[0].reason == UNLOADED
