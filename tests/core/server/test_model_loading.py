"""Loading models when the server starts."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from app.core.engine.models.registry import Registry
from app.core.engine.models.servable import Servable
from app.core.server.process import ModelLoading
from app.core.settings.model import ModelError, ModelSource
from tests.support.servers.apps import load_test_model


def load_all(registry: Registry, load: Callable[[ModelSource], Servable]) -> bool:
    """Load the models of a registry, and return whether any is ready."""

    async def wait() -> bool:
        finished: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        loading = ModelLoading(registry, load)
        loading.when_finished = finished.set_result
        loading.start()
        return await finished

    return asyncio.run(wait())


def load_only(*versions: str) -> Callable[[ModelSource], Servable]:
    def load(source: ModelSource) -> Servable:
        if source.version not in versions:
            raise ModelError(f"{source.folder}/model.onnx is truncated")
        return load_test_model(source)

    return load


def versions_with_fallbacks(versions: str, fallbacks: str) -> list[ModelSource]:
    def version(number: str) -> ModelSource:
        return ModelSource(name="echo-fp32", version=number, folder=Path("/srv", number))

    later = tuple(version(number) for number in fallbacks)
    return [msgspec.structs.replace(version(number), fallbacks=later) for number in versions]


@pytest.mark.parametrize(
    ("versions", "fallbacks", "loadable", "answers"),
    [("4", "321", "21", "2"), ("43", "1", "1", "1"), ("43", "1", "31", "3"), ("4", "321", "", None)],
)
def test_model_falls_back_to_the_latest_version_that_loads(
    caplog: pytest.LogCaptureFixture, versions: str, fallbacks: str, loadable: str, answers: str | None
) -> None:
    registry = Registry(versions_with_fallbacks(versions, fallbacks))
    assert load_all(registry, load_only(*loadable)) is (answers is not None)
    notes = [
        (getattr(record, "version", None), getattr(record, "reason", None))
        for record in caplog.records
        if record.message == "model falls back to an earlier version"
    ]
    if answers is None:
        assert notes == []
        return
    assert registry.find("echo-fp32").source.version == answers
    assert notes == [("4", f"/srv/4/model.onnx is truncated (version {answers} answers instead)")]
    assert f"echo-fp32/4: model.onnx is truncated (version {answers} answers instead)" in registry.not_ready_reason


def test_fallbacks_are_not_loaded_if_a_version_loads() -> None:
    registry = Registry(versions_with_fallbacks("4", "321"))
    assert load_all(registry, load_only("4", "3"))
    assert [registration.source.version for registration in registry.registrations] == ["4"]
    assert registry.not_ready_reason == ""


def test_loading_warns_about_a_name_that_reads_as_a_chariot_id(caplog: pytest.LogCaptureFixture) -> None:
    sources = [ModelSource(name=name, version="1", folder=Path(name)) for name in ("m-cars", "echo-fp32")]

    load_all(Registry(sources), load_test_model)
    names = [getattr(record, "model", None) for record in caplog.records if record.message == "model name hidden"]
    assert names == ["m-cars"]
