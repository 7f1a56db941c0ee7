"""A server of KServe V1 with every model of the tests."""

from collections.abc import Iterator

import pytest
from litestar.testing import TestClient

from tests.support.data.chariot import Client
from tests.support.servers.apps import ALL_MODELS, app_with_models


@pytest.fixture(scope="package")
def client() -> Iterator[Client]:
    with TestClient(app_with_models(ALL_MODELS)) as client:
        yield client
