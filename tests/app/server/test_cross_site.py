"""What pages of other sites have a browser send."""

import pytest
from litestar import Litestar, get, post
from litestar.testing import TestClient
from litestar.types import ASGIApp

from app.server.cross_site import only_for_this_machine, without_cross_site
from app.settings.server import ServerSettings

CROSS_SITE = {"Sec-Fetch-Site": "cross-site"}


@post("/unload", status_code=200)
async def unload() -> str:
    """Something that changes the server."""
    return "unloaded"


@get(["/ready", "/inferences", "/page/models.json", "/"])
async def ready() -> str:
    """Something that does not."""
    return "ready"


def client_of(*, local: bool) -> TestClient[ASGIApp]:
    app = without_cross_site(Litestar([unload, ready], openapi_config=None), local=local)
    return TestClient(app, base_url="http://127.0.0.1:8080")


@pytest.fixture
def client() -> TestClient[ASGIApp]:
    return client_of(local=False)


@pytest.fixture
def local() -> TestClient[ASGIApp]:
    return client_of(local=True)


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
def test_what_another_page_posts_is_refused(client: TestClient[ASGIApp], headers: dict[str, str]) -> None:
    response = client.post("/unload", headers=headers)
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
def test_the_servers_own_page_and_other_clients_are_answered(
    client: TestClient[ASGIApp], headers: dict[str, str]
) -> None:
    assert client.post("/unload", headers=headers).text == "unloaded"


def test_what_a_gateway_has_allowed_is_answered(client: TestClient[ASGIApp]) -> None:
    """JSON from another origin is preceded by a question, to which this server gives no answer."""
    headers = {**CROSS_SITE, "Origin": "https://app.example", "Content-Type": "application/json"}
    assert client.post("/unload", headers=headers).text == "unloaded"
    assert "access-control-allow-origin" not in client.options("/unload", headers=headers).headers


def test_reading_is_for_everybody(client: TestClient[ASGIApp]) -> None:
    assert client.get("/ready", headers=CROSS_SITE).text == "ready"
    assert client.get("/inferences", headers={"Host": "models.example"}).text == "ready"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "192.0.2.1", "[", ""])
def test_a_rebound_name_reads_and_changes_nothing(local: TestClient[ASGIApp], host: str) -> None:
    headers = {"Host": host}
    paths = ("/inferences", "http://127.0.0.1:8080//inferences", "/page/models.json")
    asked = [local.get(path, headers=headers) for path in paths]
    asked.append(local.get("/", headers={**headers, "Accept": "text/html,*/*"}))
    asked.append(local.post("/unload", headers={**headers, "Origin": f"http://{host}"}))
    assert [each.status_code for each in asked] == [403] * 5
    assert "--page" in asked[0].json()["error"]


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost", "LOCALHOST:80", "[::1]:8080", "127.8.0.1"])
def test_this_machines_own_names_are_answered(local: TestClient[ASGIApp], host: str) -> None:
    assert local.get("/inferences", headers={"Host": host}).text == "ready"
    assert local.post("/unload", headers={"Host": host, "Origin": f"http://{host}"}).text == "unloaded"


def test_a_proxy_may_have_another_name_for_what_is_no_browser_and_over_tls(local: TestClient[ASGIApp]) -> None:
    named = {"Host": "models.example"}
    assert local.get("/ready", headers=named).text == "ready"
    assert local.post("/unload", headers=named).text == "unloaded"
    browser = {**named, "Origin": "https://models.example", "Sec-Fetch-Site": "same-origin"}
    assert local.post("/unload", headers=browser).text == "unloaded"
    assert local.get("/inferences", headers=browser).text == "ready"


@pytest.mark.parametrize(
    ("settings", "local"),
    [
        (ServerSettings(host="127.0.0.1"), True),
        (ServerSettings(host="localhost", page=False), True),
        (ServerSettings(host="0.0.0.0"), False),
        (ServerSettings(host="127.0.0.1", page=True), False),
        (ServerSettings(host="127.0.0.1", page_admin=True), False),
        (ServerSettings(host="127.0.0.1", serve_inferences=True), False),
    ],
)
def test_who_opens_anything_says_that_others_come(settings: ServerSettings, local: bool) -> None:
    assert only_for_this_machine(settings) is local
