"""What is written down of who asks: refusals, inferences, and what changes the server."""

from pathlib import Path
from typing import Any

import pytest
import structlog
from litestar import Litestar
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from app.engine.events import InferenceEvent
from app.observers.request_log import RequestLog
from app.server.access.access import open_access
from app.server.page.control import PAGE_HEADER
from app.settings.access import AccessSettings
from tests.support.grpc_server import built
from tests.support.secured import (
    ADMIN,
    ALL,
    INFER,
    READ,
    access_by,
    bearer,
    client_of,
    inputs,
    key_file,
    secured,
)

PAGE = {PAGE_HEADER: "http://127.0.0.1:8080"}
INFERENCE = "/v2/models/m-detector/infer"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient[Litestar]:
    return client_of(secured(access_by(tmp_path_factory.mktemp("keys"))))


def test_refusals_are_counted_and_nothing_shown_is_told(tmp_path: Path) -> None:
    metrics = CollectorRegistry()
    client = client_of(secured(access_by(tmp_path, metrics), metrics=metrics))
    with structlog.testing.capture_logs() as logs:
        client.get("/metrics", headers=bearer("wrong-key"))
        client.get("/metrics?key=wrong-key", headers=bearer(INFER))
        client.get("/metrics")
    told = [(each["reason"], each["what"], each.get("client")) for each in logs]
    assert told == [
        ("unknown", "GET /metrics", None),
        ("permission", "GET /metrics", "camera"),
        ("missing", "GET /metrics", None),
    ]
    assert "wrong-key" not in str(logs)
    page = client.get("/metrics", headers=bearer(READ)).text
    assert 'charioteer_access_refused_total{reason="unknown"} 1.0' in page
    assert "camera" not in page


class Heard:
    def __init__(self) -> None:
        self.events: list[InferenceEvent] = []

    def observe(self, event: InferenceEvent, /) -> None:
        self.events.append(event)
        RequestLog().observe(event)


def test_an_inference_is_logged_with_who_asked_for_it(tmp_path: Path) -> None:
    heard = Heard()
    client = client_of(secured(access_by(tmp_path), built(("detector",), observers=[heard])))
    with structlog.testing.capture_logs() as logs:
        assert client.post(INFERENCE, json=inputs(), headers=bearer(INFER)).status_code == 200
    assert [each["client"] for each in logs if each["event"] == "inference"] == ["camera"]
    assert [(each.caller.client, each.caller.address) for each in heard.events] == [("camera", "testclient")]
    assert INFER not in str(logs)
    client = client_of(secured(None, built(("detector",), observers=[heard])))
    with structlog.testing.capture_logs() as logs:
        assert client.post(INFERENCE, json=inputs()).status_code == 200
    assert "client" not in next(each for each in logs if each["event"] == "inference")


AUDITED = [
    ("/v2/repository/models/{}/unload", "unload"),
    ("/v2/repository/models/{}/load", "load"),
    ("/page/repository/{}/unload", "unload"),
    ("/page/repository/{}/load", "load"),
    ("/grps/v1/health/offline", "offline"),
    ("/grps/v1/health/online", "online"),
]


def audited(client: TestClient[Litestar], path: str, **headers: str) -> dict[str, Any]:
    with structlog.testing.capture_logs() as logs:
        client.post(path, headers=headers)
    (line,) = [each for each in logs if each["event"] == "audit"]
    return dict(line)


@pytest.mark.parametrize(("path", "action"), AUDITED)
def test_what_changes_the_server_is_written_down(client: TestClient[Litestar], path: str, action: str) -> None:
    model = "detector" if "{}" in path else ""
    line = audited(client, path.format("detector"), **bearer(ADMIN), **PAGE, **{"X-Request-ID": "r-7"})
    assert line == {
        "event": "audit",
        "log_level": "info",
        "action": action,
        "model": model,
        "outcome": "ok",
        "status": 200,
        "client": "operator",
        "address": "testclient",
        "request_id": "r-7",
    }
    line = audited(client, path.format("detector"), **bearer(INFER), **PAGE)
    assert (line["outcome"], line["status"], line["client"], line["model"]) == ("refused", 403, "camera", model)
    line = audited(client, path.format("detector"), **bearer("wrong"), **PAGE)
    assert (line["outcome"], line["status"], line["client"], line["model"]) == ("refused", 401, "anonymous", model)
    assert line["request_id"]


def test_what_fails_and_what_the_page_refuses_is_written_down_too(client: TestClient[Litestar]) -> None:
    line = audited(client, "/v2/repository/models/none/load", **bearer(ADMIN))
    assert (line["outcome"], line["status"], line["model"]) == ("failed", 404, "none")
    line = audited(client, "/page/repository/detector/unload", **bearer(ADMIN))
    assert (line["outcome"], line["status"], line["client"]) == ("refused", 403, "operator")


def test_without_keys_it_is_written_down_that_somebody_did() -> None:
    line = audited(client_of(secured(None)), "/v2/repository/models/detector/unload")
    assert (line["outcome"], line["client"]) == ("ok", "anonymous")


def test_the_page_shows_buttons_to_those_who_may_press_them(client: TestClient[Litestar]) -> None:
    shown = {
        key: client.get("/page/repository", headers={**bearer(key), **PAGE}).json()["admin"] for key in (READ, ALL)
    }
    assert shown == {READ: False, ALL: True}


def test_strangers_fill_no_disk(tmp_path: Path) -> None:
    client = client_of(secured(open_access(AccessSettings(api_keys=key_file(tmp_path)), CollectorRegistry())))
    with structlog.testing.capture_logs() as logs:
        for _ in range(50):
            assert client.post("/grps/v1/health/offline", headers={"X-Request-ID": "r-9"}).status_code == 401
            # Neither with what browsers send of a picture's address on another page.
            for picture in ({"Sec-Fetch-Site": "cross-site"}, {"Authorization": "Basic eA=="}):
                assert client.get("/grps/v1/health/offline", headers=picture).status_code == 401
        for _ in range(20):
            assert client.post("/grps/v1/health/offline", headers=bearer(READ)).status_code == 403
    audits = [each["client"] for each in logs if each["event"] == "audit"]
    refusals = [each for each in logs if each["event"] == "access refused"]
    assert audits.count("screen") == 20
    assert 10 <= audits.count("anonymous") <= len(refusals) < 40
    assert refusals[0]["request_id"] == "r-9"


def test_a_name_of_any_length_makes_no_long_line(client: TestClient[Litestar]) -> None:
    with structlog.testing.capture_logs() as logs:
        path = f"/v2/repository/models/{'n' * 30_000}/unload"
        assert client.post(path, headers={**bearer(INFER), "X-Request-ID": "i" * 1000}).status_code == 403
    (line,) = [each for each in logs if each["event"] == "audit"]
    assert line["model"].startswith("nnn")
    assert line["request_id"].startswith("iii")
    assert len(str(line)) < 1000
