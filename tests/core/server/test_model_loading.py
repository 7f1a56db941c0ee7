"""Loading models when the server starts."""

import asyncio
from collections.abc import Callable
from pathlib import Path

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


@pytest.mark.parametrize(("versions", "loadable", "answers"), [("432", "32", "3"), ("43", "", None)])
def test_latest_version_that_loads_answers(
    caplog: pytest.LogCaptureFixture, versions: str, loadable: str, answers: str | None
) -> None:
    registry = Registry(
        [ModelSource(name="echo-fp32", version=number, folder=Path("/srv", number)) for number in versions]
    )
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


def test_loading_warns_about_a_name_that_reads_as_a_chariot_id(caplog: pytest.LogCaptureFixture) -> None:
    sources = [ModelSource(name=name, version="1", folder=Path(name)) for name in ("m-cars", "echo-fp32")]

    load_all(Registry(sources), load_test_model)
    names = [getattr(record, "model", None) for record in caplog.records if record.message == "model name hidden"]
    assert names == ["m-cars"]
