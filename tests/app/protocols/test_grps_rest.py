"""GRPS over REST beside the golden cases: parts sent as they are made, the operator's flag, and refusals."""

import asyncio
import gzip
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import yaml
from litestar import Litestar
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from app import __version__
from app.engine.engine import Engine
from app.engine.registry import Registration, Registry
from app.engine.repository import Repository
from app.protocols.grps.messages import GrpsMessage
from app.protocols.grps.routes import Grps
from app.protocols.kserve_v2.routes import KServeV2
from app.server.asgi import create_app
from tasks.exchange.error import ErrorKind
from tasks.exchange.limits import Limits
from tests.support.grpc_server import built, serving_grpc
from tests.support.pictures import base64_text, encoded, rectangle
from tests.support.served import load_any, source
from tests.support.speaker import Gate, Seen, Speaker, speaking

PREDICT = "/grps/v1/infer/predict"
PICTURE = encoded(rectangle())
BINARY = {"content-type": "application/octet-stream"}

Client = TestClient[Litestar]


def app_over(engine: Engine) -> Litestar:
    return create_app(engine, [KServeV2(), Grps()], CollectorRegistry(), 2_000_000)


@pytest.fixture(scope="module")
def seen() -> Seen:
    return Seen()


@pytest.fixture(scope="module")
def client(seen: Seen) -> Iterator[Client]:
    with TestClient(app_over(built(("detector", "failing", "teller", "echo-fp32"), observers=[seen]))) as client:
        yield client


def messages(text: str) -> list[dict[str, Any]]:
    """JSON messages with nothing between them."""
    found: list[dict[str, Any]] = []
    while text:
        message, end = json.JSONDecoder().raw_decode(text)
        found.append(message)
        text = text[end:]
    return found


def test_readiness_says_why_in_the_message() -> None:
    with TestClient(app_over(built(("detector",)))) as client:
        for method in ("GET", "POST"):
            for verb, status, said in (("offline", 503, "FAILURE"), ("online", 200, "SUCCESS")):
                assert client.request(method, f"/grps/v1/health/{verb}").json()["status"]["status"] == "SUCCESS"
                answer = client.request(method, "/grps/v1/health/ready")
                told = answer.json()["status"]
                assert (answer.status_code, told["code"], told["status"]) == (status, status, said)
                assert told["msg"] == ("OK" if status == 200 else "The server was taken offline by its operator")


def test_online_does_not_make_up_for_models_that_are_missing() -> None:
    with TestClient(app_over(built(("detector",), loaded=False))) as client:
        assert client.get("/grps/v1/health/online").status_code == 200
        refused = client.get("/grps/v1/health/ready")
        assert refused.status_code == refused.json()["status"]["code"] == 503
        assert "not loaded" in refused.json()["status"]["msg"]
        assert client.post(PREDICT, content=PICTURE, headers=BINARY).json()["status"]["code"] == 503
        told = client.post("/grps/v1/metadata/model", json={"str_data": "detector"}).json()
        assert yaml.safe_load(told["str_data"])["state"] == "LOADING"


def test_metadata_is_yaml_of_the_server_and_its_models(client: Client) -> None:
    told = yaml.safe_load(client.get("/grps/v1/metadata/server").json()["str_data"])
    assert told["server"] == {"name": "charioteer", "version": __version__, "online": True}
    assert told["default_model"] is None
    assert told["limits"]["max_inputs"] == 8
    assert [each["name"] for each in told["models"]] == ["detector", "echo-fp32", "failing", "teller"]
    model = client.post("/grps/v1/metadata/model", json={"str_data": "detector"}).json()["str_data"]
    assert yaml.safe_load(model) == told["models"][0]
    assert told["models"][0]["task_type"] == "OBJECT_DETECTION"
    assert told["models"][0]["outputs"][3] == {"name": "boxes", "dtype": "DT_FLOAT32", "shape": [-1, -1, 4]}


def test_descriptions_are_not_written_in_the_event_loop() -> None:
    class Watched(Registry):
        watching = False
        looked = 0

        @property
        def registrations(self) -> Sequence[Registration]:
            if self.watching:
                with pytest.raises(RuntimeError):
                    asyncio.get_running_loop()
                self.looked += 1
            return super().registrations

    sources = [source("detector")]
    registry = Watched(sources)
    registry.load(sources[0], load_any)
    engine = Engine(Repository(registry, lambda: sources, load_any), [], Limits(), workers=1)
    with TestClient(app_over(engine)) as client, serving_grpc(engine) as peer:
        registry.watching = True
        assert client.get("/grps/v1/metadata/server").status_code == 200
        assert client.post("/grps/v1/metadata/model", json={"str_data": "nobody"}).status_code == 404
        for method in ("ServerMetadata", "ModelMetadata"):
            data = GrpsMessage(str_data="nobody").SerializeToString()
            told = GrpsMessage.FromString(peer.bytes(f"/grps.protos.v1.GrpsService/{method}", data))
            assert told.status.code == (200 if method == "ServerMetadata" else 404)
        registry.watching = False
    assert registry.looked >= 4


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "Application/JSON"])
def test_content_types_are_read_leniently(client: Client, content_type: str) -> None:
    body = json.dumps({"model": "echo-fp32", "ndarray": [[1]]})
    assert client.post(PREDICT, content=body, headers={"content-type": content_type}).status_code == 200


def test_refusals_are_observed_with_the_model_that_was_asked(client: Client, seen: Seen) -> None:
    client.post(f"{PREDICT}?model=detector", content=b"x", headers={"content-type": "text/plain", "x-request-id": "r"})
    event = seen.events[-1]
    assert (event.model_name, event.outcome, event.caller.protocol) == ("detector", ErrorKind.INVALID_REQUEST, "grps")
    assert event.caller.request_id == "r"
    client.post(PREDICT, json={"model": "detector-1", "str_data": "?"})
    assert (seen.events[-1].model_name, seen.events[-1].outcome) == ("detector", ErrorKind.INVALID_REQUEST)


def test_a_compressed_body_is_read(client: Client) -> None:
    body = gzip.compress(json.dumps({"model": "detector", "str_data": base64_text(PICTURE)}).encode())
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    assert client.post(PREDICT, content=body, headers=headers).status_code == 200
    assert client.post(PREDICT, content=body[:20], headers=headers).json()["status"]["code"] == 400


def test_everything_under_the_prefix_is_refused_in_its_shape(client: Client) -> None:
    for method, path, code in (
        ("GET", "/grps/v1", 404),
        ("GET", "/grps/v1/nothing", 404),
        ("GET", PREDICT, 405),
        ("DELETE", "/grps/v1/health/live", 405),
    ):
        told = client.request(method, path)
        assert told.status_code == told.json()["status"]["code"] == code
        assert told.headers["content-type"] == "application/json"
    large = client.post(f"{PREDICT}?model=detector", content=b"x" * 2_000_001, headers=BINARY)
    assert large.status_code == large.json()["status"]["code"] == 413
    assert "error" in client.get("/grps/v10").json()


def test_more_images_than_may_be_are_refused(client: Client) -> None:
    images = {str(number): base64_text(PICTURE) for number in range(9)}
    refused = client.post(PREDICT, json={"model": "detector", "gmap": {"s_b": images}})
    assert refused.json()["status"]["code"] == 413
    assert refused.json()["status"]["msg"].startswith("gmap.s_b: Expected at most 8")


def test_a_stream_is_not_held_back_by_compression(client: Client) -> None:
    answer = client.post(
        f"{PREDICT}?model=teller&streaming=true", content=PICTURE, headers={**BINARY, "accept-encoding": "gzip"}
    )
    assert "content-encoding" not in answer.headers
    assert answer.headers["content-type"] == "application/octet-stream"
    assert [each["str_data"] for each in messages(answer.text)] == ["64x48"]


def test_pieces_of_text_joined_are_the_answer() -> None:
    with TestClient(app_over(speaking(Speaker("a", "", " circle", " on", " grey")))) as client:
        path = f"{PREDICT}?model=speaker-7&prompts=x&prompts=y"
        whole = client.post(path, content=PICTURE, headers=BINARY).json()["str_data"]
        parts = messages(client.post(f"{path}&streaming=true", content=PICTURE, headers=BINARY).text)
        assert len(parts) == 8
        assert all(each["status"] == {"code": 200, "msg": "OK", "status": "SUCCESS"} for each in parts)
        joined = "".join(each["str_data"] for each in parts)
        assert joined.split("\n") == [each["answer"] for each in json.loads(whole)] == ["a circle on grey"] * 2


def test_an_answer_of_nothing_is_one_message() -> None:
    with TestClient(app_over(speaking(Speaker("", "")))) as client:
        answer = client.post(f"{PREDICT}?model=speaker&streaming=true", content=PICTURE, headers=BINARY)
        assert messages(answer.text) == [{"status": {"code": 200, "msg": "OK", "status": "SUCCESS"}, "str_data": ""}]


def test_pieces_as_tensors_tell_image_and_prompt() -> None:
    with TestClient(app_over(speaking(Speaker("a", "b")))) as client:
        picture = {"dtype": "DT_STRING", "shape": [1], "flat_string": [base64_text(PICTURE)]}
        prompts = {"name": "prompts", "dtype": "DT_STRING", "shape": [2], "flat_string": ["x", "y"]}
        body = {"model": "speaker", "gtensors": {"tensors": [picture, picture, prompts]}}
        parts = messages(client.post(f"{PREDICT}?streaming=true", json=body).text)
    told: list[tuple[int, ...]] = []
    texts: list[str] = []
    for each in parts:
        image, prompt, final, text = each["gtensors"]["tensors"]
        assert [one["name"] for one in (image, prompt, final, text)] == ["image", "prompt", "final", "text"]
        told.append((image["flat_int32"][0], prompt["flat_int32"][0], final["flat_uint8"][0]))
        texts.append(text["flat_string"][0])
    assert told == [(image, prompt, final) for image in (0, 1) for prompt in (0, 1) for final in (0, 0, 1)]
    assert texts == ["a", "b", ""] * 4


def test_a_failure_on_the_way_is_the_last_message() -> None:
    with TestClient(app_over(speaking(Speaker("a", RuntimeError("no more"), "b")))) as client:
        answer = client.post(f"{PREDICT}?model=speaker&streaming=true", content=PICTURE, headers=BINARY)
    assert answer.status_code == 200
    first, last = messages(answer.text)
    assert first["str_data"] == "a"
    assert last == {"status": {"code": 500, "msg": "The model failed: no more", "status": "FAILURE"}}


class Connection:
    """One streamed request put to the application directly, so that what is sent can be seen when it is sent."""

    def __init__(self, app: Litestar, model: str) -> None:
        self._app = app
        self._model = model
        self._received = False
        self.gone = asyncio.Event()
        self.sent: asyncio.Queue[Any] = asyncio.Queue()

    async def receive(self) -> Any:
        if not self._received:
            self._received = True
            return {"type": "http.request", "body": PICTURE, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def run(self) -> None:
        scope: Any = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": PREDICT,
            "raw_path": PREDICT.encode(),
            "query_string": f"streaming=true&model={self._model}".encode(),
            "root_path": "",
            "headers": [(b"content-type", b"application/octet-stream"), (b"content-length", b"%d" % len(PICTURE))],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "state": {},
        }
        await self._app(scope, self.receive, self.send)

    async def send(self, message: Any) -> None:
        await self.sent.put(message)
        if message["type"] == "http.response.body" and not message["more_body"]:
            self.gone.set()

    async def text(self) -> str:
        """The text of the next message."""
        part = await self.sent.get()
        assert part["more_body"]
        return json.loads(part["body"])["str_data"]


def test_a_message_is_sent_before_the_next_is_made() -> None:
    gate = Gate()
    app = app_over(speaking(Speaker("a", "b", "c", gate=gate)))

    async def run() -> None:
        connection = Connection(app, "speaker")
        running = asyncio.create_task(connection.run())
        for index, expected in enumerate("abc"):
            gate.open()
            if index == 0:
                assert (await connection.sent.get())["type"] == "http.response.start"
            assert await connection.text() == expected
        assert not (await connection.sent.get())["more_body"]
        await running

    asyncio.run(run())


def test_a_client_that_goes_away_frees_the_worker() -> None:
    seen, gate = Seen(), Gate(opened=1)
    speaker = Speaker(*"abcdef", gate=gate)
    engine = speaking(speaker, seen, workers=1)
    app = app_over(engine)

    async def run() -> None:
        connection = Connection(app, "speaker")
        running = asyncio.create_task(connection.run())
        assert (await connection.sent.get())["type"] == "http.response.start"
        assert await connection.text() == "a"
        for _ in "ab":
            await asyncio.to_thread(gate.await_step)
        connection.gone.set()
        await running
        gate.open()
        assert await asyncio.to_thread(speaker.closed.wait, 60)
        await Connection(app, "teller").run()

    asyncio.run(run())
    assert speaker.made == 2
    assert not engine.busy
    event = seen.events[0]
    assert (event.model_name, event.outcome) == ("speaker", None)
