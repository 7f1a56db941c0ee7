"""Models that fail in every way, each beside one that goes on serving."""

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar import Litestar
from litestar.testing import TestClient

from app.assembly.models import sources
from app.assembly.service import Service
from app.settings.server import ModelOptions, ServerSettings
from tests.support.chariot import image_input, infer, items
from tests.support.model_folders import write

Client = TestClient[Litestar]

GOOD = (
    "class Model:\n    def predict(self, image):\n        height, width, _ = image.shape\n        return [{}]\n".format(
        "dict(label='it', score=1, xmin=0, ymin=0, xmax=width, ymax=height)"
    )
)


@contextmanager
def serving(repository: Path, *, allow_code: bool = True) -> Generator[Client]:
    """The whole service over a repository, its models loaded."""
    options = ModelOptions(model_repository=repository, allow_code=allow_code)
    settings = ServerSettings(grpc=False, tensorflow_serving=False, workers=2)
    service = Service(settings, lambda: sources(options))
    loaded = threading.Event()
    service.loading.when_finished = lambda _: loaded.set()
    with TestClient(service.app) as client:
        assert loaded.wait(60)
        yield client


def answered_by_the_good(client: Client) -> bool:
    return items(infer(client, "good", image_input()))[0]["xmax"] == 64


def body(predict: str) -> str:
    return f"import math, sys, threading, asyncio\nclass Model:\n    {predict}\n"


HELD = """
import pathlib
HERE = pathlib.Path(__file__).parent
class Model:
    def predict(self, image):
        if not (HERE / "open").exists():
            (HERE / "gate").read_text()
        return []
"""
"""Its first call hangs until the pipe beside it is written to and closed."""

BOX = "dict(label='it', score={score}, xmin={xmin}, ymin=0, xmax=30, ymax=20)"


@pytest.mark.parametrize(
    ("predict", "status", "said"),
    [
        ("def predict(self, image): raise ValueError('no')", 500, "The model failed: ValueError: no"),
        ("def predict(self, image): return 1 / 0", 500, "ZeroDivisionError"),
        ("def predict(self, image): sys.exit(1)", 500, "The model failed: SystemExit: 1"),
        ("def predict(self, image): raise KeyboardInterrupt", 500, 'The model failed: KeyboardInterrupt"'),
        ("def predict(self, image): assert image is None", 500, 'The model failed: AssertionError"'),
        ("def predict(self, image): return self.predict(image)", 500, "RecursionError"),
        ("async def predict(self, image): raise ValueError('no')", 500, "The model failed: ValueError: no"),
        ("async def predict(self, image): raise asyncio.CancelledError", 500, "CancelledError"),
        ("def predict(self, images): return []", 500, "predict(): Expected a list of 1 answers, one for each image"),
        ("def predict(self, images): return [[]] * 2", 500, "got a list of 2"),
        ("def predict(self, images): return {'boxes': []}", 500, "got a dict with the keys 'boxes'"),
        ("def predict(self, images): return None", 500, "one for each image, got None"),
        (
            f"def predict(self, image): return [{BOX.format(score='math.nan', xmin=1)}]",
            500,
            "predict()[0].score: Expected",
        ),
        (
            f"def predict(self, images): return [[{BOX.format(score=7, xmin=1)}]]",
            500,
            "predict()[0][0].score: Expected",
        ),
        (f"def predict(self, image): return [{BOX.format(score=1, xmin='math.inf')}]", 500, "Expected finite numbers"),
        (f"def predict(self, image): return [{BOX.format(score=1, xmin=31)}]", 500, "Expected left <= right"),
        ("def predict(self, image): return 'x' * 1000000", 500, "got 'xxx"),
        ("def predict(self, image): threading.Event().wait()", 504, "did not answer within 0.2 s"),
        ("async def predict(self, image): await asyncio.Event().wait()", 504, "did not answer within 0.2 s"),
    ],
)
def test_a_failure_is_told_and_is_that_models_alone(tmp_path: Path, predict: str, status: int, said: str) -> None:
    write(tmp_path / "good", GOOD)
    write(tmp_path / "bad", body(predict), timeout_seconds=0.2 if status == 504 else 60)
    with serving(tmp_path) as client:
        first = infer(client, "bad", image_input())
        assert first.status_code == status
        assert said in first.text
        assert len(first.content) < 1000
        assert answered_by_the_good(client)
        # What cannot be cancelled still runs.
        assert infer(client, "bad", image_input()).status_code == (503 if "threading.Event" in predict else status)
        assert answered_by_the_good(client)
        assert client.get("/v2/health/live").status_code == 200


def test_a_model_that_hangs_does_not_pile_up_what_is_asked_of_it(tmp_path: Path) -> None:
    write(tmp_path / "good", GOOD)
    write(tmp_path / "bad", body("def predict(self, image): threading.Event().wait()"), timeout_seconds=0.3)
    found: list[httpx.Response] = []
    with serving(tmp_path) as client:
        asking = [threading.Thread(target=lambda: found.append(infer(client, "bad", image_input()))) for _ in range(8)]
        for each in asking:
            each.start()
        for each in asking:
            each.join(30)
        assert answered_by_the_good(client)
        statuses = sorted(each.status_code for each in found)
        assert statuses[-1] == 504
        assert set(statuses) <= {429, 503, 504}
        again = infer(client, "bad", image_input())
        assert again.status_code == 503
        assert "has not returned from a call of more than 0.3 s" in again.text
        # Loaded anew it has a new object, in a new thread.
        write(tmp_path / "bad", GOOD)
        assert client.post("/v2/repository/models/bad/load").status_code == 200
        assert infer(client, "bad", image_input()).status_code == 200


def test_while_a_model_hangs_every_worker_is_there_for_the_others(tmp_path: Path) -> None:
    write(tmp_path / "good", GOOD)
    folder = write(tmp_path / "slow", HELD)
    os.mkfifo(folder / "gate")
    found: list[httpx.Response] = []
    with serving(tmp_path) as client:
        asking = [threading.Thread(target=lambda: found.append(infer(client, "slow", image_input()))) for _ in range(8)]
        for each in asking:
            each.start()
        # Opened for writing, a pipe waits for its reader: from here on the model is in its call.
        with (folder / "gate").open("w"):
            (folder / "open").touch()
            assert answered_by_the_good(client)
            assert not found
        for each in asking:
            each.join(30)
    assert [each.status_code for each in found] == [200] * 8


def test_boxes_outside_the_image_are_clipped_or_left_out(tmp_path: Path) -> None:
    answer = "[dict(label='it', score=1, xmin=a, ymin=-9, xmax=b, ymax=999) for a, b in ((-5, 10), (60, 90), (70, 90))]"
    write(tmp_path / "m", body(f"def predict(self, image): return {answer}"))
    with serving(tmp_path) as client:
        found = items(infer(client, "m", image_input()))
    assert [(each["xmin"], each["xmax"], each["ymin"], each["ymax"]) for each in found] == [
        (0, 10, 0, 48),
        (60, 64, 0, 48),
    ]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise ValueError('no')", "ValueError: no"),
        ("import sys; sys.exit()", "SystemExit"),
        ("import threading; threading.Event().wait()", "did not end within 0.2 s"),
        (
            "class Model:\n    def load(self): raise MemoryError('GPU')\n    def predict(self, image): ...",
            "MemoryError: GPU",
        ),
    ],
)
def test_a_model_that_does_not_load_leaves_the_others(tmp_path: Path, code: str, said: str) -> None:
    write(tmp_path / "good", GOOD)
    write(tmp_path / "bad", code, load_timeout_seconds=0.2)
    with serving(tmp_path) as client:
        response = infer(client, "bad", image_input())
        assert response.status_code == 503
        assert said in response.text
        assert answered_by_the_good(client)
        assert "bad" in client.get("/ready").text


def test_settings_that_cannot_be_read_leave_the_others(tmp_path: Path) -> None:
    write(tmp_path / "good", GOOD)
    write(tmp_path / "bad", GOOD)
    (tmp_path / "bad" / "model-settings.json").write_text('{"implementation": "mod')
    with serving(tmp_path) as client:
        response = infer(client, "bad", image_input())
        assert response.status_code == 503
        assert "model-settings.json is not valid JSON" in response.text
        assert answered_by_the_good(client)
        # Once they are mended, so is the model.
        write(tmp_path / "bad", GOOD)
        assert client.post("/v2/repository/models/bad/load").status_code == 200
        assert infer(client, "bad", image_input()).status_code == 200


def test_no_request_brings_in_code_that_the_operator_did_not_allow(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    write(tmp_path / "models" / "m", f"import pathlib\npathlib.Path({str(ran)!r}).touch()\n{GOOD}")
    with serving(tmp_path / "models", allow_code=False) as client:
        refused = infer(client, "m", image_input(allow_code=True), parameters={"allow_code": True})
        assert refused.status_code == 503
        assert "--allow-code" in refused.text
        bodies: list[Any] = [
            None,
            {"parameters": {"allow_code": True}},
            {"parameters": {"config": '{"allow_code": true}'}},
        ]
        for each in bodies:
            loading = client.post("/v2/repository/models/m/load", json=each)
            assert loading.status_code in (400, 503), loading.text
        assert not ran.exists()
