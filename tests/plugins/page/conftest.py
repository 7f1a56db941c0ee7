"""An engine for the web page."""

import pytest

from app.core.engine.engine import Engine
from tasks.inference.limits import Limits
from tests.plugins.page.pages import NAMES, model_source, repository_of


@pytest.fixture
def engine() -> Engine:
    return Engine(repository_of(*map(model_source, NAMES)), Limits(), workers=2)
