"""Our server with all models of the tests, over HTTP and gRPC."""

from collections.abc import Iterator

import pytest
from litestar.testing import TestClient

from tests.support.data.chariot import Client
from tests.support.servers.apps import ALL_MODELS, app_with_models, load_test_model, model_source
from tests.support.servers.grpc_server import GrpcTestClient, build_engine_from_sources, run_grpc_server


@pytest.fixture(scope="session")
def kserve() -> Iterator[Client]:
    """Serve KServe's protocols and GRPS."""
    with TestClient(app_with_models(ALL_MODELS)) as client:
        yield client


@pytest.fixture(scope="session")
def tensorflow() -> Iterator[Client]:
    """Serve TensorFlow Serving's protocol."""
    with TestClient(app_with_models(ALL_MODELS, "tensorflow-serving")) as client:
        yield client


@pytest.fixture(scope="session")
def peer() -> Iterator[GrpcTestClient]:
    """Serve every protocol over gRPC."""
    sources = [model_source(name) for name in ALL_MODELS]
    with run_grpc_server(build_engine_from_sources(sources, load_test_model)) as peer:
        yield peer
