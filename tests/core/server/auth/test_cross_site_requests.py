"""Cross-origin requests to a server with authentication."""

from pathlib import Path

import httpx
import pytest
from litestar import Litestar
from litestar.testing import TestClient

from app.core.protocols.chariot_v2 import ChariotV2
from app.core.server.http.request_rules import cors_config
from tests.support.servers.auth_apps import (
    INFER_KEY,
    OWNER_KEY,
    access_with_keys,
    authenticated_app,
    bearer_header,
    http_client,
    inference_body,
)
from tests.support.servers.grpc_server import build_engine

INFERENCE = "/v2/models/m-detector/infer"


LISTED, OTHER = "https://app.example", "https://evil.example"


@pytest.fixture
def cors_client(tmp_path: Path) -> TestClient[Litestar]:
    app = authenticated_app(access_with_keys(tmp_path), build_engine(("detector",)), origins=[LISTED])
    return TestClient(app, base_url="http://127.0.0.1:8080")


def preflight(client: TestClient[Litestar], names: str, origin: str = LISTED, path: str = INFERENCE) -> httpx.Response:
    """Ask whether a page of `origin` may send headers with these names."""
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": names}
    return client.options(path, headers={"Origin": origin, **asked})


def test_listed_origin_passes_preflight_and_reads_responses(cors_client: TestClient[Litestar]) -> None:
    preflight_response = preflight(cors_client, "authorization,content-type")
    assert preflight_response.headers["access-control-allow-origin"] == LISTED
    assert "authorization" in preflight_response.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in preflight_response.headers
    cross_site = {"Origin": LISTED, "Sec-Fetch-Site": "cross-site"}
    response = cors_client.post(INFERENCE, json=inference_body(), headers={**cross_site, **bearer_header(INFER_KEY)})
    assert (response.status_code, response.headers["access-control-allow-origin"]) == (200, LISTED)
    rejected = cors_client.post("/grps/v1/health/online", headers={**cross_site, "Content-Type": "text/plain"})
    assert (rejected.status_code, rejected.headers["access-control-allow-origin"]) == (401, LISTED)


@pytest.mark.parametrize(
    "header_names",
    [
        "authorization,x-api-key,chariot-inference-base-id",
        "ce-id,ce-source,ce-specversion,ce-type,ce-time,ce-datacontenttype,ce-subject,ce-dataschema",
        "inference-header-content-length,x-request-id,x-request-timeout-ms,traceparent,tracestate",
    ],
)
def test_listed_origin_may_send_the_headers_of_every_protocol(
    cors_client: TestClient[Litestar], header_names: str
) -> None:
    preflight_response = preflight(cors_client, header_names)
    assert preflight_response.status_code == 204
    assert set(header_names.split(",")) <= set(preflight_response.headers["access-control-allow-headers"].split(", "))


def test_headers_of_a_protocol_are_allowed_where_it_is_served() -> None:
    configs = [cors_config([LISTED], protocols) for protocols in ([], [ChariotV2()])]
    assert [config and "chariot-inference-parameters" in config.allow_headers for config in configs] == [False, True]


def test_listed_origin_cannot_use_the_password_stored_in_a_browser(cors_client: TestClient[Litestar]) -> None:
    path, password = "/grps/v1/health/online", ("anybody", OWNER_KEY)
    for headers in ({"Origin": LISTED, "Sec-Fetch-Site": "cross-site"}, {"Origin": LISTED}):
        assert cors_client.post(path, headers=headers, auth=password).status_code == 403
        assert cors_client.post(path, headers={**headers, **bearer_header(OWNER_KEY)}).status_code == 200
    own = {"Origin": "http://127.0.0.1:8080", "Sec-Fetch-Site": "same-origin"}
    assert cors_client.post(path, headers=own, auth=password).status_code == 200


def test_other_origins_are_rejected(cors_client: TestClient[Litestar]) -> None:
    assert "access-control-allow-origin" not in preflight(cors_client, "content-type", OTHER).headers
    simple = {"Origin": OTHER, "Sec-Fetch-Site": "cross-site", "Content-Type": "text/plain", **bearer_header(OWNER_KEY)}
    assert cors_client.post("/v2/repository/models/detector/unload", headers=simple).status_code == 403
    # A gateway has allowed the preflight of such a request.
    answered = cors_client.post(INFERENCE, json=inference_body(), headers={"Origin": OTHER, **bearer_header(INFER_KEY)})
    assert (answered.status_code, "access-control-allow-origin" in answered.headers) == (200, False)


def test_responses_without_cors_origins_have_no_cors_header() -> None:
    response = http_client(authenticated_app(None)).get("/health", headers={"Origin": LISTED})
    assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize("with_keys", [True, False])
def test_image_tag_on_another_site_cannot_take_the_server_offline(tmp_path: Path, with_keys: bool) -> None:
    engine = build_engine(("detector",))
    client = http_client(authenticated_app(access_with_keys(tmp_path) if with_keys else None, engine))
    # GRPS serves this path for GET too.
    path = "/grps/v1/health/offline"
    for site in ("cross-site", "same-site"):
        rejected = client.get(path, headers={**bearer_header(OWNER_KEY), "Sec-Fetch-Site": site})
        assert (rejected.status_code, rejected.json()["status"]["code"]) == (403, 403)
    # Without TLS, browsers omit Sec-Fetch-Site for other machines but send the stored password.
    assert client.get(path, auth=("anybody", OWNER_KEY)).status_code == 403
    assert engine.online
    assert client.get(path, headers={**bearer_header(OWNER_KEY), "Sec-Fetch-Site": "none"}).status_code == 200
    assert not engine.online
    assert client.post("/grps/v1/health/online", auth=("anybody", OWNER_KEY)).status_code == 200
    assert engine.online
