"""Other ASGI servers run the application too, as Ray Serve does."""

import threading
from collections.abc import Generator

import httpx
import pytest
import uvicorn

from app.core.server.listen import open_listen_socket
from tests.support.polling import wait_until
from tests.support.servers.apps import app_with_models


@pytest.fixture
def address() -> Generator[str]:
    """Run the application in uvicorn, and yield its URL."""
    config = uvicorn.Config(app_with_models(["half_plus_two"]), log_config=None, lifespan="on", ws="none")
    server = uvicorn.Server(config)
    with open_listen_socket("127.0.0.1", 0) as listen_socket:
        thread = threading.Thread(target=server.run, args=([listen_socket],))
        thread.start()
        try:
            wait_until(lambda: server.started)
            yield f"http://127.0.0.1:{listen_socket.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(60)


def test_uvicorn_serves_the_application(address: str) -> None:
    assert httpx.get(f"{address}/healthz", timeout=60).json() == {"status": "alive"}
    tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}
    response = httpx.post(f"{address}/v2/models/half_plus_two/infer", json={"inputs": [tensor]}, timeout=60)
    assert response.json()["outputs"][0]["data"] == [2.5]
