"""Clients of every protocol ask for tiles, and get the answer for the whole image with the number of tiles."""

import asyncio
import base64
import threading
from collections.abc import Callable, Sequence
from typing import Any

import cv2
import msgspec
import pytest
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from app.core.engine.engine import Engine
from app.core.engine.models.servable import Servable
from app.core.settings.model import ModelSource
from app.plugins.tiling.step import TILES
from tasks.inference.limits import Limits
from tests.core.engine.engines import new_context
from tests.plugins.tiling.spots import SIDE, canvas, detect, request, tiled
from tests.support.models.engines import engine_of
from tests.support.models.scripted_model import EventRecorder
from tests.support.protocol_cases import PROTOCOL_CASES
from tests.support.protocols import attach_plugins
from tests.support.servers.apps import app_of_protocol, model_source

SPOT = (190, 100, 260, 130)


def png() -> bytes:
    pixels = canvas()
    left, top, right, bottom = SPOT
    pixels[top:bottom, left:right] = 255
    return cv2.imencode(".png", pixels)[1].tobytes()


def tiling_engine(
    *observers: Any, workers: int = 2, load: Callable[[ModelSource], Servable] = lambda _: tiled("box")
) -> Engine:
    sources, limits = [model_source("detector")], Limits(max_inputs=64)
    return attach_plugins(engine_of(sources, load, *observers, limits=limits, workers=workers))


@pytest.mark.parametrize("protocol", [name for name, case in PROTOCOL_CASES.items() if case.has_parameters])
def test_tiles_over_every_http_protocol_are_counted(protocol: str) -> None:
    observer, metrics, case = EventRecorder(), CollectorRegistry(), PROTOCOL_CASES[protocol]
    metrics.register(TILES)
    before = metrics.get_sample_value("charioteer_tiles_total", {"model": "detector"})
    parameters = {"tile": SIDE, "overlap": 0.5}
    path, content = case.encode(case.infer("detector", [base64.b64encode(png()).decode()], parameters))
    with TestClient(app_of_protocol(tiling_engine(observer), protocol)) as client:
        answer = client.post(path, content=content, headers={"Content-Type": case.media_type})
    assert answer.status_code == 200, answer.text
    assert str(SPOT[2]) in answer.text
    (result,) = [event.result for event in observer.events]
    assert result is not None
    assert len(result.samples) == 1
    assert [output.parameters["tiles"] for output in result.outputs] == [24]
    assert metrics.get_sample_value("charioteer_tiles_total", {"model": "detector"}) == (before or 0) + 24


def test_tiles_of_one_request_are_one_job_of_the_fair_queue() -> None:
    calls: list[int] = []
    gate = threading.Event()

    def model(inputs: Sequence[Any]) -> Sequence[Any]:
        assert gate.wait(60)
        calls.extend(item.image.width for item in inputs)
        return detect(inputs)

    engine = tiling_engine(workers=1, load=lambda _: tiled("box", model))

    async def ask(width: int) -> None:
        wanted = msgspec.structs.replace(request(canvas(width), tile=SIDE), model_name="detector")
        await engine.handle(new_context(), "detector", lambda: wanted, lambda response: response)

    async def ask_all() -> None:
        tasks = [asyncio.create_task(ask(width)) for width in (700, 300, 700)]
        for _ in range(100):
            # Let all of them join the queue.
            await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(*tasks)

    asyncio.run(ask_all())
    tiles_of_700, tiles_of_300 = [*[SIDE] * 15, 700], [*[SIDE] * 6, 300]
    assert calls == [*tiles_of_700, *tiles_of_300, *tiles_of_700]
