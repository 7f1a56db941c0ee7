"""Paths with verbs, protocols that meet, ports of their own, and a server that is taken offline."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from litestar import Response
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from app.engine.engine import Engine
from app.protocols import protocols_beside
from app.protocols.permission import Permission
from app.protocols.protocol import Endpoint, HttpRequest, json_response
from app.server.asgi import create_app, create_listener_app
from app.server.dispatch import CollisionError, handlers
from app.server.ports import by_port
from tasks.exchange.error import InferenceError
from tests.support.chariot import image_input
from tests.support.grpc_server import Peer, built, message, serving_grpc
from tests.support.pictures import base64_text, encoded, rectangle


class Verbs:
    """A protocol whose paths end in verbs, and on a port of its own answers with what it was asked."""

    name = "verbs"
    title = "Verbs"

    def __init__(self, *verbs: str | None) -> None:
        self._verbs = verbs

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        def saying(verb: str | None) -> Callable[[HttpRequest], Awaitable[Response[bytes]]]:
            async def say(request: HttpRequest) -> Response[bytes]:
                return json_response(f'["{verb}","{request.path_params["target"]}"]'.encode())

            return say

        path = "/v1/things/{target:str}"
        return [Endpoint(method="POST", path=path, verb=verb, handle=saying(verb)) for verb in self._verbs]

    def error_body(self, error: InferenceError, /) -> bytes:
        return str(error).encode()

    def permission(self, request: HttpRequest, /) -> Permission:
        return "infer"

    def answer(self, engine: Engine, /) -> Callable[[HttpRequest], Awaitable[Response[Any]]]:
        async def answer(request: HttpRequest) -> Response[bytes]:
            return json_response(f'["{request.method}","{request.url.path}"]'.encode(), status=418)

        return answer


def test_a_path_is_served_by_its_verb() -> None:
    with TestClient(create_app(built(("detector",)), [Verbs("drive", "park")], CollectorRegistry(), 1000)) as client:
        assert client.post("/v1/things/a:drive").json() == ["drive", "a"]
        assert client.post("/v1/things/a:b:park").json() == ["park", "a:b"]
        for path in ("/v1/things/a", "/v1/things/a:fly", "/v1/things/a:", "/v1/things/a:drive:"):
            refused = client.post(path)
            assert refused.status_code == 404
            assert refused.text == "Expected the name of a model and :drive or :park behind it"
        described = client.get("/schema").json()["paths"]
        assert {each for each in described if "things" in each} == {
            "/v1/things/{target}:drive",
            "/v1/things/{target}:park",
        }


def test_two_protocols_with_one_path_and_verb_are_refused_by_name() -> None:
    engine = built(("detector",))
    handlers([Verbs("drive"), Verbs("park")], engine)
    with pytest.raises(CollisionError, match=r"verbs and verbs both serve POST /v1/things/\{target:str\}:park"):
        handlers([Verbs("drive", "park"), Verbs("park")], engine)


def test_a_listener_answers_every_method_and_path() -> None:
    with TestClient(create_listener_app(built(("detector",)), Verbs(), 1000)) as client:
        for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS"):
            for path in ("/", "/v1/x:y", "/a/b/c"):
                response = client.request(method, path)
                assert response.status_code == 418
                assert response.json() == [method, path]


class Owner(Verbs):
    """A protocol to which a prefix belongs."""

    prefix = "/v1/things"

    def routing_error(self, status: int, message: str, /) -> bytes:
        return f"[{status}]".encode()


def test_errors_under_a_prefix_have_the_shape_of_its_owner() -> None:
    with TestClient(create_app(built(("detector",)), [Owner("drive")], CollectorRegistry(), 1000)) as client:
        for method, path, status in (
            ("GET", "/v1/things/a", 405),
            ("POST", "/v1/things", 404),
            ("GET", "/v1/things/a/b", 404),
        ):
            refused = client.request(method, path)
            assert (refused.status_code, refused.text) == (status, f"[{status}]")
            assert refused.headers["content-type"] == "application/json"
        for path in ("/v1/thingses", "/v1", "/x/v1/things"):
            assert client.get(path).json() == {"error": f"Nothing is served at {path}"}


def test_requests_go_to_the_application_of_their_port() -> None:
    engine = built(("detector",))
    main = create_app(engine, [], CollectorRegistry(), 1000)
    app = by_port(main, {8501: create_listener_app(engine, Verbs(), 1000)})
    with TestClient(app, base_url="http://here.local:8501") as client:
        assert client.get("/metrics").status_code == 418
    with TestClient(app, base_url="http://here.local:8080") as client:
        assert client.get("/metrics").status_code == 200


def test_offline_turns_every_readiness_off_and_goes_on_answering() -> None:
    engine = built(("detector",))
    paths = ("/ready", "/v2/health/ready", "/v2/models/detector/ready", "/v2/models/m-detector/ready")
    app = create_app(engine, protocols_beside("chariot-v2-kserve"), CollectorRegistry(), 100_000)
    with TestClient(app) as client, serving_grpc(engine) as peer:
        for online, status in ((True, 200), (False, 503), (True, 200)):
            engine.online = online
            assert [client.get(path).status_code for path in paths] == [status] * len(paths)
            assert ready_over_grpc(peer) == [online, online]
            assert peer.call("ServerLive").live
            assert client.get("/v2/health/live").status_code == client.get("/v2/models/detector").status_code == 200
            body = {"inputs": [image_input(base64_text(encoded(rectangle())))]}
            assert client.post("/infer", json=body).status_code == 200


def ready_over_grpc(peer: Peer) -> Sequence[bool]:
    model = message("ModelReadyRequest", name="detector")
    return [peer.call("ServerReady").ready, peer.call("ModelReady", model).ready]
