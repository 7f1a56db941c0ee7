"""An app with a web page, its engine, its trends and their clock."""

from collections.abc import Iterator

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from app.core.engine.engine import Engine
from app.plugins.page.page import WebPage
from app.plugins.page.trends import Trends
from tests.plugins.page.pages import NAMES, Clock, app_of, engine_of


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
