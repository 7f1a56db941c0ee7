"""Loading and unloading stand-ins; the tests of the V2 routes do it with files and traffic."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.core.engine.models.registry import ModelState, Registration, Registry
from app.core.engine.models.repository import UNLOADED, Repository
from app.core.engine.models.servable import Servable
from app.core.settings.model import ModelError, ModelSource
from tasks.inference.error import ErrorKind
from tests.support.models.fake_models import load_fake_model
from tests.support.rejection import rejects


def source(name: str = "detector", version: str = "1") -> ModelSource:
    return ModelSource(name=name, version=version, folder=Path(name))


ONE, TWO, OTHER = source(), source(version="2"), source("classifier")


def repository_of(
    *on_disk: ModelSource,
    served: Sequence[ModelSource] = (ONE,),
    load: Callable[[ModelSource], Servable] = load_fake_model,
    **options: float,
) -> Repository:
    """Return a repository with the models `on_disk`, where those in `served` are loaded."""
    registry = Registry(served)
    for model_source in served:
        registry.load(model_source, load_fake_model)
    return Repository(registry, lambda: on_disk, load, **options)


def check_rejected(repository: Repository, match: str, kind: ErrorKind = ErrorKind.MODEL_NOT_READY) -> None:
    """Check that a load of the detector is rejected."""
    with rejects(match, kind=kind):
        asyncio.run(repository.load("detector"))


def states(registrations: Sequence[Registration]) -> list[tuple[str, str, ModelState, str]]:
    return [
        (registration.source.name, registration.source.version, registration.state, registration.reason)
        for registration in registrations
    ]


def test_load_of_a_name_that_reads_as_a_chariot_id_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(repository_of(source("m-cars"), load=lambda _: load_fake_model(ONE)).load("m-cars"))
    names = [getattr(record, "model", None) for record in caplog.records if record.message == "model name hidden"]
    assert names == ["m-cars"]


class BlockingLoader:
    """Load every model at once except the detector, which waits for `proceed`."""

    def __init__(self) -> None:
        self.started, self.proceed = threading.Event(), threading.Event()

    def __call__(self, model_source: ModelSource) -> Servable:
        if model_source.name == "detector":
            self.started.set()
            assert self.proceed.wait(60)
        return load_fake_model(model_source)

    @asynccontextmanager
    async def blocked(self, repository: Repository) -> AsyncGenerator[asyncio.Task[None]]:
        """Load the detector, which goes on at the end."""
        loading = asyncio.create_task(repository.load("detector"))
        assert await asyncio.to_thread(self.started.wait, 30)
        yield loading
        self.proceed.set()
        await loading


def test_index_lists_served_models_and_models_on_disk() -> None:
    repository = repository_of(ONE, TWO, OTHER)
    assert states(asyncio.run(repository.index())) == [
        ("detector", "1", ModelState.READY, ""),
        ("detector", "2", ModelState.UNAVAILABLE, "not loaded"),
        ("classifier", "1", ModelState.UNAVAILABLE, "not loaded"),
    ]
    assert not repository.registry.not_ready_reason


def test_load_adds_new_versions_and_drops_deleted_ones() -> None:
    repository = repository_of(TWO, served=(ONE,))
    asyncio.run(repository.load("detector"))
    assert [registration.source for registration in repository.registry.versions("detector")] == [TWO]
    repository = repository_of(ONE, TWO)
    asyncio.run(repository.load("detector"))
    assert [registration.source for registration in repository.registry.versions("detector")] == [TWO, ONE]
    assert repository.registry.find("detector").source is TWO


def test_failed_load_changes_nothing() -> None:
    def load(model_source: ModelSource) -> Servable:
        if model_source is TWO:
            raise ModelError("cut short")
        return load_fake_model(model_source)

    repository = repository_of(ONE, TWO, load=load)
    before = repository.registry.find("detector")
    check_rejected(repository, "^Failed to load 'detector': cut short$")
    assert repository.registry.find("detector") is before
    assert states(asyncio.run(repository.index())) == [
        ("detector", "1", ModelState.READY, ""),
        ("detector", "2", ModelState.UNAVAILABLE, "cut short"),
    ]


def test_load_that_a_check_rejects_changes_nothing() -> None:
    def check(sources: Sequence[ModelSource]) -> None:
        raise ModelError(f"{sources[0].folder}: contradiction")

    repository = repository_of(OTHER, served=(ONE,))
    repository.checks.append(check)
    with rejects("^Failed to load 'classifier': classifier: contradiction$"):
        asyncio.run(repository.load("classifier"))
    assert states(asyncio.run(repository.index()))[1:] == [
        ("classifier", "1", ModelState.UNAVAILABLE, "classifier: contradiction")
    ]


def test_load_of_two_models_with_the_same_name_and_version_is_rejected() -> None:
    repository = repository_of(ONE, ModelSource(name="detector", version="1", folder=Path("copy")))
    before = repository.registry.find("detector")
    check_rejected(repository, "^Failed to load 'detector': two models have this name and version; rename one of them$")
    assert repository.registry.find("detector") is before


def test_old_version_serves_until_the_new_one_is_ready() -> None:
    load = BlockingLoader()
    repository = repository_of(ONE, load=load)
    before = repository.registry.find("detector").servable

    async def run() -> None:
        async with load.blocked(repository):
            assert repository.registry.find("detector").servable is before
            unloading = asyncio.create_task(repository.unload("detector"))
        await unloading

    asyncio.run(run())
    assert repository.registry.versions("detector")[0].reason == UNLOADED, "load and unload run one after the other"


def test_unreadable_repository_is_treated_as_empty() -> None:
    def discover() -> Sequence[ModelSource]:
        raise ModelError("gone")

    repository = Repository(Registry([ONE]), discover, load_fake_model)
    assert [registration.source for registration in asyncio.run(repository.index())] == [ONE]
    check_rejected(repository, "'detector'", kind=ErrorKind.MODEL_NOT_FOUND)


def test_model_that_hangs_during_load_does_not_block_others() -> None:
    load = BlockingLoader()
    repository = repository_of(ONE, OTHER, served=(ONE, OTHER), load=load)
    before = repository.registry.find("classifier").servable

    async def run() -> None:
        async with load.blocked(repository) as loading:
            await asyncio.wait_for(repository.load("classifier"), 10)
            assert repository.registry.find("classifier").servable is not before
            await asyncio.wait_for(repository.unload("classifier"), 10)
            assert not loading.done()

    asyncio.run(run())


@pytest.mark.parametrize("action", ["load", "unload"])
def test_second_load_or_unload_of_a_hanging_model_times_out(action: str) -> None:
    load = BlockingLoader()
    repository = repository_of(ONE, load=load, timeout=0.05)

    async def run() -> None:
        async with load.blocked(repository):
            with rejects("still being loaded", kind=ErrorKind.MODEL_NOT_READY):
                await getattr(repository, action)("detector")
            assert repository.registry.find("detector").state is ModelState.READY, "the old version keeps serving"

    asyncio.run(run())


@pytest.mark.parametrize(
    "raised", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), MemoryError(), StopIteration()]
)
def test_system_exit_and_similar_errors_during_load_fail_only_the_load(raised: BaseException) -> None:
    def load(_: ModelSource) -> Servable:
        raise raised

    repository = repository_of(ONE, load=load)
    check_rejected(repository, type(raised).__name__)
    assert repository.registry.find("detector").state is ModelState.READY


def test_load_errors_for_clients_have_no_folders(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "a secret place" / "detector"
    source_in_folder = ModelSource(name="detector", version="1", folder=folder)

    def load(model_source: ModelSource) -> Servable:
        raise ModelError(f"{model_source.folder / 'model.onnx'} is cut short")

    repository = repository_of(source_in_folder, load=load)
    check_rejected(repository, "^Failed to load 'detector': model.onnx is cut short$")
    assert [getattr(record, "reason", "") for record in caplog.records] == [f"{folder / 'model.onnx'} is cut short"]
    registry = Registry([source_in_folder])
    registration = registry.load(source_in_folder, load)
    assert registration.reason == "model.onnx is cut short"
    assert registration.detail == f"{folder / 'model.onnx'} is cut short"
    assert "secret" not in registry.not_ready_reason


def test_unload_during_the_first_load_wins() -> None:
    load = BlockingLoader()
    registry = Registry([ONE])
    repository = Repository(registry, lambda: [ONE], load)

    async def run() -> None:
        first = asyncio.create_task(asyncio.to_thread(registry.load, ONE, load))
        assert await asyncio.to_thread(load.started.wait, 30)
        await repository.unload("detector")
        load.proceed.set()
        await first

    asyncio.run(run())
    assert registry.versions("detector")[0].reason == UNLOADED
