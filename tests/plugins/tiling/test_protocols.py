"""Clients of every protocol ask for tiles, and get the answer for the whole image with the number of tiles."""

import base64
from collections.abc import Iterator
from contextlib import ExitStack

import cv2
import pytest
from litestar import Litestar
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from app.core.engine.engine import Engine
from app.core.engine.models.registry import Registry
from app.core.engine.models.repository import Repository
from app.core.engine.models.servable import Servable
from app.core.engine.request_context import RequestContext
from app.core.settings.model import ModelSource
from app.plugins.tiling.metrics import TileMetrics
from tasks.inference.limits import Limits
from tests.plugins.tiling.spots import SIDE, canvas, tiled
from tests.support.protocol_cases import PROTOCOL_CASES
from tests.support.protocols import attach_plugins
from tests.support.servers.apps import app_of_protocol, model_source

SPOT = (190, 100, 260, 130)
PROTOCOLS = [name for name, case in PROTOCOL_CASES.items() if case.has_parameters]


class Contexts(list[RequestContext]):
    """Keeps finished requests."""

    def observe(self, context: RequestContext, /) -> None:
        self.append(context)


def load(source: ModelSource) -> Servable:
    del source
    return tiled("box")


def image() -> str:
    pixels = canvas()
    left, top, right, bottom = SPOT
    pixels[top:bottom, left:right] = 255
    return base64.b64encode(cv2.imencode(".png", pixels)[1].tobytes()).decode()


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[dict[str, TestClient[Litestar]], Contexts, CollectorRegistry]]:
    sources, contexts, metrics = [model_source("detector")], Contexts(), CollectorRegistry()
    registry = Registry(sources)
    registry.load(sources[0], load)
    engine = Engine(
        Repository(registry, lambda: sources, load), [contexts, TileMetrics(metrics)], Limits(max_inputs=64), workers=2
    )
    attach_plugins(engine)
    with ExitStack() as stack:
        yield (
            {name: stack.enter_context(TestClient(app_of_protocol(engine, name))) for name in PROTOCOLS},
            contexts,
            metrics,
        )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tiles_over_every_protocol(
    served: tuple[dict[str, TestClient[Litestar]], Contexts, CollectorRegistry], protocol: str
) -> None:
    clients, contexts, metrics = served
    case = PROTOCOL_CASES[protocol]

    def post(**parameters: object) -> tuple[int, str]:
        path, content = case.encode(case.infer("detector", [image()], parameters))
        answer = clients[protocol].post(path, content=content, headers={"Content-Type": case.media_type})
        return answer.status_code, answer.text

    before = metrics.get_sample_value("charioteer_tiles_total", {"model": "detector"}) or 0
    status, text = post(tile=SIDE, overlap=0.5)
    assert status == 200, text
    assert str(SPOT[2]) in text
    context = contexts[-1]
    assert context.result is not None
    assert [output.parameters["tiles"] for output in context.result.outputs] == [24]
    assert len(context.result.samples) == 1
    assert metrics.get_sample_value("charioteer_tiles_total", {"model": "detector"}) == before + 24
    status, text = post(tile=16, overlap=0)
    assert status == 413
    assert "got 1,408 for this input; the smallest tile that fits is 39" in text
    status, text = post(tile=-5)
    assert status == 400
    assert "tile: Expected 16..16384 pixels" in text
