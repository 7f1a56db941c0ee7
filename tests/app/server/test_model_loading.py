"""Loading models when the server starts."""

import asyncio
from pathlib import Path

import pytest

from app.engine.models.registry import Registry
from app.server.process import ModelLoading
from app.settings.model import ModelSource
from tests.support.servers.apps import load_test_model


def test_loading_warns_about_a_name_that_reads_as_a_chariot_id(caplog: pytest.LogCaptureFixture) -> None:
    sources = [ModelSource(name=name, version="1", folder=Path(name)) for name in ("m-cars", "echo-fp32")]

    async def load() -> None:
        finished = asyncio.Event()
        loading = ModelLoading(Registry(sources), load_test_model)
        loading.when_finished = lambda _: finished.set()
        loading.start()
        await finished.wait()

    asyncio.run(load())
    names = [getattr(record, "model", None) for record in caplog.records if record.message == "model name hidden"]
    assert names == ["m-cars"]
