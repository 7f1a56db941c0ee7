"""The credential of an inference is verified once."""

from collections.abc import Generator

import httpx
import pytest
from prometheus_client import CollectorRegistry

from app.core.server.auth.access_control import AccessControl
from app.core.server.auth.audit import RejectionLog
from app.core.server.auth.credentials import Identity, unauthenticated
from app.core.server.auth.rate_limiter import RateLimiter
from app.core.server.listen import open_listen_socket
from app.core.server.serving import Listener
from tests.support.servers.auth_apps import authenticated_app, bearer_header, inference_body
from tests.support.servers.grpc_server import build_engine
from tests.support.servers.http_connections import local_transport, run_app

INFER_TOKEN, READ_TOKEN, WRONG_TOKEN = "a.good.token", "a.weak.token", "a.wrong.token"
PATH = "/v2/models/m-detector/infer"


class CountingProvider:
    """Count the verifications of tokens."""

    credential = "a token"

    def __init__(self) -> None:
        self.verified: list[str] = []

    def identify(self, credential: str) -> Identity:
        self.verified.append(credential)
        if credential == WRONG_TOKEN:
            raise unauthenticated("token", "The token is not valid")
        return Identity(name="jwt:ann", permissions=frozenset({"infer"} if credential == INFER_TOKEN else {"read"}))


@pytest.fixture
def provider() -> CountingProvider:
    return CountingProvider()


@pytest.fixture
def metrics() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def client(provider: CountingProvider, metrics: CollectorRegistry) -> Generator[httpx.Client]:
    access = AccessControl(None, provider, RateLimiter(), RejectionLog(metrics))
    engine = build_engine(("detector",))
    app = authenticated_app(access, engine)
    with (
        open_listen_socket("127.0.0.1", 0) as listening_socket,
        run_app(Listener(app=app), local_transport(), listening_socket, lifespan=app.lifespan()),
        httpx.Client(base_url=f"http://127.0.0.1:{listening_socket.getsockname()[1]}", timeout=60) as http_client,
    ):
        yield http_client


@pytest.mark.parametrize(
    ("token", "status", "reason"),
    [(INFER_TOKEN, 200, None), (READ_TOKEN, 403, "permission"), (WRONG_TOKEN, 401, "token")],
)
def test_token_of_an_inference_is_verified_once(
    client: httpx.Client,
    provider: CountingProvider,
    metrics: CollectorRegistry,
    token: str,
    status: int,
    reason: str | None,
) -> None:
    response = client.post(PATH, json=inference_body(), headers=bearer_header(token))
    assert response.status_code == status
    assert provider.verified == [token]
    if reason is not None:
        assert metrics.get_sample_value("charioteer_access_refused_total", {"reason": reason}) == 1


def test_rejection_of_one_request_does_not_reject_the_next(client: httpx.Client, provider: CountingProvider) -> None:
    statuses = [
        client.post(PATH, json=inference_body(), headers=bearer_header(token)).status_code
        for token in (WRONG_TOKEN, INFER_TOKEN, WRONG_TOKEN)
    ]
    assert statuses == [401, 200, 401]
    assert len(provider.verified) == 3
