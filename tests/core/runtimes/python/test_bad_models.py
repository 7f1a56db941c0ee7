"""Test models that hang beside a model that keeps serving, and code that requests may not run."""

import os
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from litestar import Litestar
from litestar.testing import TestClient

from app.core.assembly.models import find_models
from app.core.assembly.service import Service
from app.core.settings.server import ModelOptions
from tests.support.data.chariot import image_input, infer, items
from tests.support.models.model_folders import write_model
from tests.support.servers.settings import settings_of_main_port

Client = TestClient[Litestar]

GOOD = (
    "class Model:\n    def predict(self, image):\n        height, width, _ = image.shape\n        return [{}]\n".format(
        "dict(label='it', score=1, xmin=0, ymin=0, xmax=width, ymax=height)"
    )
)


@contextmanager
def serving(repository: Path, *, allow_code: bool = True) -> Generator[Client]:
    """Start the complete service over a repository, and wait until its models are loaded."""
    options = ModelOptions(model_repository=repository, allow_code=allow_code)
    settings = settings_of_main_port(workers=2)
    service = Service(settings, lambda: find_models(options))
    loaded = threading.Event()
    service.loading.when_finished = lambda _: loaded.set()
    with TestClient(service.app) as client:
        assert loaded.wait(60)
        yield client


def good_model_answers(client: Client) -> bool:
    return items(infer(client, "good", image_input()))[0]["xmax"] == 64


HANGING = "import threading\nclass Model:\n    def predict(self, image): threading.Event().wait()\n"
BLOCKING = """
import pathlib
HERE = pathlib.Path(__file__).parent
class Model:
    def predict(self, image):
        if not (HERE / "open").exists():
            (HERE / "gate").read_text()
        return []
"""
"""Block the first call until a writer opens and closes the pipe beside the code."""


def test_hung_model_is_replaced_by_a_reload(tmp_path: Path) -> None:
    write_model(tmp_path / "m", HANGING, timeout_seconds=0.3)
    with serving(tmp_path) as client:
        assert infer(client, "m", image_input()).status_code == 504
        assert "has not returned from a call of more than 0.3 s" in infer(client, "m", image_input()).text
        # A reload creates a new instance in a new thread.
        write_model(tmp_path / "m", GOOD)
        assert client.post("/v2/repository/models/m/load").status_code == 200
        assert infer(client, "m", image_input()).status_code == 200


def test_hung_model_does_not_occupy_workers(tmp_path: Path) -> None:
    write_model(tmp_path / "good", GOOD)
    folder = write_model(tmp_path / "slow", BLOCKING)
    os.mkfifo(folder / "gate")
    with serving(tmp_path) as client, ThreadPoolExecutor(8) as pool:
        responses = [pool.submit(infer, client, "slow", image_input()) for _ in range(8)]
        # Opening the pipe for writing waits for its reader, so the model is now inside its call.
        with (folder / "gate").open("w"):
            (folder / "open").touch()
            assert good_model_answers(client)
            assert not any(response.done() for response in responses)
        assert [response.result(30).status_code for response in responses] == [200] * 8


def test_request_cannot_allow_code_to_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    write_model(tmp_path / "models" / "m", f"import pathlib\npathlib.Path({str(marker)!r}).touch()\n{GOOD}")
    with serving(tmp_path / "models", allow_code=False) as client:
        rejected = infer(client, "m", image_input(allow_code=True), parameters={"allow_code": True})
        assert rejected.status_code == 503
        assert "--allow-code" in rejected.text
        payloads: list[Any] = [
            None,
            {"parameters": {"allow_code": True}},
            {"parameters": {"config": '{"allow_code": true}'}},
        ]
        for payload in payloads:
            response = client.post("/v2/repository/models/m/load", json=payload)
            assert response.status_code in (400, 503), response.text
        assert not marker.exists()
