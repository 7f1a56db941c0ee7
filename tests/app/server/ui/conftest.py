"""An app with a web page, its engine, its trends and their clock."""

from collections.abc import Iterator

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from app.engine.engine import Engine
from app.observers.trends import Trends
from app.server.ui.page import WebPage
from tests.app.server.ui.pages import NAMES, Clock, app_of, engine_of


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def trends(clock: Clock) -> Trends:
    return Trends(NAMES.__contains__, clock)


@pytest.fixture
def engine(trends: Trends) -> Engine:
    return engine_of(trends)


@pytest.fixture
def client(engine: Engine, trends: Trends) -> Iterator[TestClient[Litestar]]:
    with TestClient(app_of(engine, WebPage(engine, trends))) as client:
        yield client
