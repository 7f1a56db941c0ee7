"""Log lines about clients: rejections, inferences and admin requests."""

from pathlib import Path
from typing import Any

import pytest
import structlog
from litestar import Litestar
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from app.core.observers.request_log import RequestLog
from app.core.server.auth.access_control import open_access_control
from app.core.settings.network import AccessSettings
from tests.support.data.chariot import image_input
from tests.support.models.scripted_model import EventRecorder
from tests.support.servers.auth_apps import (
    ADMIN_KEY,
    INFER_KEY,
    READ_KEY,
    access_with_keys,
    authenticated_app,
    bearer_header,
    http_client,
    inference_body,
    write_key_file,
)
from tests.support.servers.grpc_server import build_engine

INFERENCE = "/v2/models/m-detector/infer"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient[Litestar]:
    return http_client(authenticated_app(access_with_keys(tmp_path_factory.mktemp("keys"))))


def test_rejections_are_counted_and_logged_without_the_key(tmp_path: Path) -> None:
    metrics = CollectorRegistry()
    client = http_client(authenticated_app(access_with_keys(tmp_path, metrics), metrics=metrics))
    with structlog.testing.capture_logs() as logs:
        client.get("/metrics", headers=bearer_header("wrong-key"))
        client.get("/metrics?key=wrong-key", headers=bearer_header(INFER_KEY))
        client.get("/metrics")
    rejections = [(line["reason"], line["what"], line.get("client")) for line in logs]
    assert rejections == [
        ("unknown", "GET /metrics", None),
        ("permission", "GET /metrics", "camera"),
        ("missing", "GET /metrics", None),
    ]
    assert "wrong-key" not in str(logs)
    page = client.get("/metrics", headers=bearer_header(READ_KEY)).text
    assert 'charioteer_access_refused_total{reason="unknown"} 1.0' in page
    assert "camera" not in page


def test_inference_is_logged_with_its_client(tmp_path: Path) -> None:
    observer = EventRecorder()
    client = http_client(
        authenticated_app(access_with_keys(tmp_path), build_engine(("detector",), observers=[observer, RequestLog()]))
    )
    with structlog.testing.capture_logs() as logs:
        assert client.post(INFERENCE, json=inference_body(), headers=bearer_header(INFER_KEY)).status_code == 200
    assert [line["client"] for line in logs if line["event"] == "inference"] == ["camera"]
    assert [(event.client, event.address) for event in observer.events] == [("camera", "testclient")]
    assert INFER_KEY not in str(logs)
    client = http_client(authenticated_app(None, build_engine(("detector",), observers=[observer, RequestLog()])))
    with structlog.testing.capture_logs() as logs:
        body = {"inputs": [image_input(metadata=[{"key": "k", "type": "str", "value": "v"}, 5])]}
        assert client.post(INFERENCE, json=body, headers={"Chariot-Inference-Base-ID": "base"}).status_code == 200
    line = next(line for line in logs if line["event"] == "inference")
    assert "client" not in line
    assert (line["inference_base_id"], line["metadata"], len(line["metadata_faults"])) == ("base", [{"k": "v"}], 1)


AUDITED = [
    ("/v2/repository/models/{}/unload", "unload"),
    ("/v2/repository/models/{}/load", "load"),
    ("/grps/v1/health/offline", "offline"),
    ("/grps/v1/health/online", "online"),
]


def audited(client: TestClient[Litestar], path: str, **headers: str) -> dict[str, Any]:
    with structlog.testing.capture_logs() as logs:
        client.post(path, headers=headers)
    (line,) = [line for line in logs if line["event"] == "audit"]
    return dict(line)


@pytest.mark.parametrize(("path", "action"), AUDITED)
def test_admin_requests_are_audited_with_client_and_outcome(
    client: TestClient[Litestar], path: str, action: str
) -> None:
    model = "detector" if "{}" in path else ""
    line = audited(client, path.format("detector"), **bearer_header(ADMIN_KEY), **{"X-Request-ID": "r-7"})
    expected = {"event": "audit", "log_level": "info", "action": action, "model": model, "address": "testclient"}
    assert line == {**expected, "outcome": "ok", "status": 200, "client": "operator", "request_id": "r-7"}
    for key, status, name in ((INFER_KEY, 403, "camera"), ("wrong", 401, "anonymous")):
        line = audited(client, path.format("detector"), **bearer_header(key))
        assert line.pop("request_id")
        assert line == {**expected, "outcome": "refused", "status": status, "client": name}


def test_failed_admin_request_is_audited(client: TestClient[Litestar]) -> None:
    line = audited(client, "/v2/repository/models/none/load", **bearer_header(ADMIN_KEY))
    assert (line["outcome"], line["status"], line["model"]) == ("failed", 404, "none")


def test_admin_request_without_authentication_is_audited_as_anonymous() -> None:
    line = audited(http_client(authenticated_app(None)), "/v2/repository/models/detector/unload")
    assert (line["outcome"], line["client"]) == ("ok", "anonymous")


def test_log_lines_of_unauthenticated_requests_are_sampled(tmp_path: Path) -> None:
    client = http_client(
        authenticated_app(open_access_control(AccessSettings(api_keys=write_key_file(tmp_path)), CollectorRegistry()))
    )
    with structlog.testing.capture_logs() as logs:
        for _ in range(25):
            assert client.post("/grps/v1/health/offline", headers={"X-Request-ID": "r-9"}).status_code == 401
            # Browsers send such a password for an image tag on another site.
            headers = {"Authorization": "Basic eA=="}
            assert client.get("/grps/v1/health/offline", headers=headers).status_code == 401
        for _ in range(20):
            assert client.post("/grps/v1/health/offline", headers=bearer_header(READ_KEY)).status_code == 403
    audits = [line["client"] for line in logs if line["event"] == "audit"]
    rejections = [line for line in logs if line["event"] == "access refused"]
    assert audits.count("screen") == 20
    assert 10 <= audits.count("anonymous") <= len(rejections) < 40
    assert rejections[0]["request_id"] == "r-9"


def test_long_names_are_truncated_in_audit_lines(client: TestClient[Litestar]) -> None:
    with structlog.testing.capture_logs() as logs:
        path = f"/v2/repository/models/{'n' * 30_000}/unload"
        assert client.post(path, headers={**bearer_header(INFER_KEY), "X-Request-ID": "i" * 1000}).status_code == 403
    (line,) = [line for line in logs if line["event"] == "audit"]
    assert line["model"].startswith("nnn")
    assert line["request_id"].startswith("iii")
    assert all(len(str(line)) < 1000 for line in logs)
