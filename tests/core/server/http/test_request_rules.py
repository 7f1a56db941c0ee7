"""Requests that pages of other sites make a browser send."""

import pytest
from litestar import Litestar, get, post
from litestar.testing import TestClient
from litestar.types import ASGIApp

from app.core.assembly.models import find_models
from app.core.assembly.service import Service
from app.core.plugins import registry
from app.core.server.http.request_rules import allowed_hosts, guard_requests
from app.core.settings.server import ModelOptions, ServerSettings, SettingsError
from tests.support.servers.server_process import ROOT
from tests.support.servers.settings import settings_of_all_ports

CROSS_SITE = {"Sec-Fetch-Site": "cross-site"}


@post("/unload", status_code=200)
async def unload() -> str:
    """Stand for a route that changes the server."""
    return "unloaded"


@get(["/ready", "/inferences", "/page/models.json", "/"])
async def ready() -> str:
    """Stand for a route that only reads."""
    return "ready"


def client_of(*, local: bool) -> TestClient[ASGIApp]:
    routes = Litestar([unload, ready], openapi_config=None)
    app = guard_requests(routes, hosts=() if local else None)
    return TestClient(app, base_url="http://127.0.0.1:8080")


CLIENT, LOCAL = client_of(local=False), client_of(local=True)


@pytest.mark.parametrize(
    "headers",
    [
        CROSS_SITE,
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "Cross-Site "},
        {**CROSS_SITE, "Content-Type": "text/plain;charset=UTF-8"},
        {**CROSS_SITE, "Content-Type": "Multipart/Form-Data; boundary=a"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:8081"},
        {"Origin": "http://evil.example", "X-Forwarded-Host": "models.example"},
    ],
)
def test_post_from_a_page_of_another_origin_is_rejected(headers: dict[str, str]) -> None:
    response = CLIENT.post("/unload", headers=headers)
    assert response.status_code == 403
    assert response.json()["error"].startswith("A page of another site sent this")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "http://127.0.0.1:8080"},
        {"Origin": "https://models.example", "Host": "models.example:443"},
        {"Origin": "http://models.example", "X-Forwarded-Host": "models.example, inner"},
        {"Origin": "http://models.example", "Sec-Fetch-Site": "same-origin"},
    ],
)
def test_post_from_own_page_and_from_other_clients_is_served(headers: dict[str, str]) -> None:
    assert CLIENT.post("/unload", headers=headers).text == "unloaded"


def test_cross_site_get_is_served() -> None:
    assert CLIENT.get("/ready", headers=CROSS_SITE).text == "ready"
    assert CLIENT.get("/inferences", headers={"Host": "models.example"}).text == "ready"


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8080", "127.0.0.1.evil.example", "192.0.2.1", "[", ""),
        *("[::1].evil", "[::1]evil.example:8080", "x@127.0.0.1", "x:y@localhost:8080", "127.0.0.1:8080@evil.example"),
        *("127.0.0.1/evil", "127.0.0.1?evil", "127.0.0.1#evil", "127.0.0.1:evil", "[127.0.0.1]", "[::1", "::1"),
    ],
)
def test_host_that_is_not_loopback_is_rejected_on_a_loopback_address(host: str) -> None:
    browser = {"Host": host, "Origin": f"https://{host}", "Sec-Fetch-Site": "same-origin"}
    responses = [LOCAL.get(path, headers={"Host": host}) for path in ("/ready", "/inferences", "/", "/nothing")]
    responses += [LOCAL.post("/unload", headers=browser), LOCAL.options("/unload", headers=browser)]
    assert [response.status_code for response in responses] == [403] * 6
    assert "--allowed-hosts" in responses[0].json()["error"]


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost", "LOCALHOST:80", "[::1]:8080", "[::1]", "127.8.0.1"])
def test_loopback_hosts_are_accepted(host: str) -> None:
    assert LOCAL.get("/inferences", headers={"Host": host}).text == "ready"
    assert LOCAL.post("/unload", headers={"Host": host, "Origin": f"http://{host}"}).text == "unloaded"


@pytest.mark.parametrize(
    ("settings", "hosts"),
    [
        (registry().settings(), set[str]()),
        (registry().settings(host="localhost", page=True, serve_inferences=True), set[str]()),
        (registry().settings(host="::1", allowed_hosts="A.example, b.example:8080,"), {"a.example", "b.example"}),
        (registry().settings(allowed_hosts="*"), None),
        (registry().settings(host="0.0.0.0"), None),
        (registry().settings(host="0.0.0.0", allowed_hosts="a.example"), {"a.example"}),
    ],
)
def test_allowed_hosts_follow_the_settings(settings: ServerSettings, hosts: set[str] | None) -> None:
    assert allowed_hosts(settings) == hosts


@pytest.mark.parametrize(
    "name", ["https://a.example", "fd00::1", "*.example", "a.example/", "a.example b.example", ":80"]
)
def test_allowed_host_that_matches_no_header_is_rejected(name: str) -> None:
    with pytest.raises(SettingsError, match="--allowed-hosts: expected names such as app"):
        allowed_hosts(ServerSettings(allowed_hosts=f"good.example, {name}"))


@pytest.fixture(scope="module")
def service() -> Service:
    options = ModelOptions(model=ROOT / "fixtures" / "models" / "half_plus_two")
    return Service(settings_of_all_ports(allowed_hosts="models.example"), lambda: find_models(options))


def client_of_app(app: ASGIApp) -> TestClient[ASGIApp]:
    return TestClient(app, base_url="http://127.0.0.1:8080")


def test_both_http_ports_reject_another_host(service: Service) -> None:
    for listener in service.listeners:
        client = client_of_app(listener.app)
        for path in (
            "/",
            "/metrics",
            "//metrics",
            "/schema",
            "/v2/models/half_plus_two/infer",
            "/v1/models/half_plus_two",
        ):
            for method in ("GET", "POST", "OPTIONS"):
                url = f"http://127.0.0.1:8080{path}"
                response = client.request(method, url, headers={"Host": "evil.example"})
                assert (method, path, response.status_code) == (method, path, 403)
        for host in ("models.example", "models.example:8080", "localhost:1"):
            assert client.get("/nothing", headers={"Host": host}).status_code == 404


def test_rejection_has_the_shape_of_the_protocol_whose_path_was_requested(service: Service) -> None:
    headers = {"Host": "evil.example"}
    main, tensorflow_serving = (client_of_app(listener.app) for listener in service.listeners)
    for path in ("/grps/v1/metadata/server", "http://127.0.0.1:8080//grps/v1/metadata/server"):
        grps = main.get(path, headers=headers).json()
        assert (grps["status"]["code"], grps["status"]["status"]) == (403, "FAILURE")
    assert list(main.get("/v2/models/a", headers=headers).json()) == ["error"]
    assert tensorflow_serving.get("/v1/models/a", headers=headers).text.startswith('{"error": "The Host')
    response = main.post("/grps/v1/health/offline", headers=CROSS_SITE)
    assert (response.status_code, list(response.json())) == (403, ["status"])
