"""Loading models at the start of the server."""

import asyncio
from pathlib import Path

import pytest

from app.engine.registry import Registry
from app.server.loading import ModelLoading
from app.settings.model import ModelSource
from tests.support.served import load_any


def test_loading_warns_about_a_name_that_means_a_chariot_id(caplog: pytest.LogCaptureFixture) -> None:
    sources = [ModelSource(name=name, version="1", folder=Path(name)) for name in ("m-cars", "echo-fp32")]

    async def load() -> None:
        finished = asyncio.Event()
        loading = ModelLoading(Registry(sources), load_any)
        loading.when_finished = lambda _: finished.set()
        loading.start()
        await finished.wait()

    asyncio.run(load())
    found = [getattr(each, "model", None) for each in caplog.records if each.message == "model name hidden"]
    assert found == ["m-cars"]
