"""Test GRPS over REST beyond the golden cases: streams, the online flag and errors."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from litestar import Litestar
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from app import __version__
from app.core.engine.engine import Engine
from app.core.engine.models.registry import Registration, Registry
from app.core.engine.models.repository import Repository
from app.core.protocols.kserve_v2.routes import KServeV2
from app.core.server.http.asgi import create_app
from app.core.settings.model import ModelSettings, ModelSource
from app.plugins.grps.routes import Grps
from tasks.inference.limits import Limits
from tests.support.data.images import encode_base64, encode_image, rectangle
from tests.support.models.engines import engine_of
from tests.support.models.scripted_model import EventRecorder, ScriptedModel, scripted_engine
from tests.support.servers.apps import load_test_model, model_source
from tests.support.servers.grpc_server import build_engine

PREDICT = "/grps/v1/infer/predict"
IMAGE = encode_image(rectangle())
BINARY = {"content-type": "application/octet-stream"}

Client = TestClient[Litestar]


def build_app(engine: Engine) -> Litestar:
    return create_app(engine, [KServeV2(), Grps()], CollectorRegistry(), 2_000_000)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with TestClient(build_app(build_engine(("detector", "failing", "echo-fp32")))) as client:
        yield client


def parse_messages(text: str) -> list[dict[str, Any]]:
    """Parse JSON messages that follow each other without a separator."""
    parsed: list[dict[str, Any]] = []
    while text:
        message, end = json.JSONDecoder().raw_decode(text)
        parsed.append(message)
        text = text[end:]
    return parsed


def test_readiness_follows_online_and_offline_and_gives_a_reason() -> None:
    with TestClient(build_app(build_engine(("detector",)))) as client:
        for method in ("GET", "POST"):
            for verb, status, state in (("offline", 503, "FAILURE"), ("online", 200, "SUCCESS")):
                assert client.request(method, f"/grps/v1/health/{verb}").json()["status"]["status"] == "SUCCESS"
                response = client.request(method, "/grps/v1/health/ready")
                status_fields = response.json()["status"]
                assert (response.status_code, status_fields["code"], status_fields["status"]) == (status, status, state)
                assert status_fields["msg"] == {200: "OK", 503: "The server was taken offline by its operator"}[status]


def test_online_server_without_loaded_models_is_not_ready() -> None:
    with TestClient(build_app(build_engine(("detector",), loaded=False))) as client:
        assert client.get("/grps/v1/health/online").status_code == 200
        response = client.get("/grps/v1/health/ready")
        assert response.status_code == response.json()["status"]["code"] == 503
        assert "not loaded" in response.json()["status"]["msg"]
        assert client.post(PREDICT, content=IMAGE, headers=BINARY).json()["status"]["code"] == 503
        metadata = client.post("/grps/v1/metadata/model", json={"str_data": "detector"}).json()
        assert yaml.safe_load(metadata["str_data"])["state"] == "LOADING"


def test_metadata_describes_server_and_models_as_yaml(client: Client) -> None:
    metadata = yaml.safe_load(client.get("/grps/v1/metadata/server").json()["str_data"])
    assert metadata["server"] == {"name": "charioteer", "version": __version__, "online": True}
    assert metadata["default_model"] is None
    assert metadata["limits"]["max_inputs"] == 8
    assert [model["name"] for model in metadata["models"]] == ["detector", "echo-fp32", "failing"]
    model_yaml = client.post("/grps/v1/metadata/model", json={"str_data": "detector"}).json()["str_data"]
    assert yaml.safe_load(model_yaml) == metadata["models"][0]
    assert metadata["models"][0]["task_type"] == "OBJECT_DETECTION"
    assert metadata["models"][0]["outputs"][3] == {"name": "boxes", "dtype": "DT_FLOAT32", "shape": [-1, -1, 4]}


def test_metadata_is_built_outside_the_event_loop() -> None:
    class ObservedRegistry(Registry):
        observed = False
        reads = 0

        def versions(self, name: str) -> Sequence[Registration]:
            if self.observed:
                with pytest.raises(RuntimeError):
                    asyncio.get_running_loop()
                self.reads += 1
            return super().versions(name)

    sources = [model_source("detector")]
    registry = ObservedRegistry(sources)
    registry.load(sources[0], load_test_model)
    engine = Engine(Repository(registry, lambda: sources, load_test_model), Limits(), workers=1)
    with TestClient(build_app(engine)) as client:
        registry.observed = True
        assert client.get("/grps/v1/metadata/server").status_code == 200
        assert client.post("/grps/v1/metadata/model", json={"str_data": "missing"}).status_code == 404
        registry.observed = False
    assert registry.reads >= 2


def test_streamed_text_chunks_join_to_the_complete_answer() -> None:
    with TestClient(build_app(scripted_engine(ScriptedModel("a", "", " circle", " on", " grey")))) as client:
        path = f"{PREDICT}?model=speaker-7&prompts=x&prompts=y"
        complete = client.post(path, content=IMAGE, headers=BINARY).json()["str_data"]
        stream_messages = parse_messages(client.post(f"{path}&streaming=true", content=IMAGE, headers=BINARY).text)
        assert len(stream_messages) == 8
        assert all(message["status"] == {"code": 200, "msg": "OK", "status": "SUCCESS"} for message in stream_messages)
        joined = "".join(message["str_data"] for message in stream_messages)
        assert joined.split("\n") == [result["answer"] for result in json.loads(complete)] == ["a circle on grey"] * 2


def test_empty_answer_is_one_message() -> None:
    with TestClient(build_app(scripted_engine(ScriptedModel("", "")))) as client:
        response = client.post(f"{PREDICT}?model=speaker&streaming=true", content=IMAGE, headers=BINARY)
        (message,) = parse_messages(response.text)
        assert (message["status"]["code"], message["str_data"]) == (200, "")


@pytest.mark.parametrize(
    ("members", "streams"),
    [
        ({"streaming": True}, True),
        ({"streaming": False}, False),
        ({"padding": "x" * 1_100_000, "streaming": True}, True),
        ({"gmap": {"s_s": {"streaming": "true"}}}, False),
    ],
    ids=["true", "false", "long", "text"],
)
def test_body_asks_for_a_stream(members: dict[str, Any], streams: bool) -> None:
    gmap = {"s_b": {"a": encode_base64(IMAGE)}, **members.pop("gmap", {})}
    gmap["s_s"] = {**gmap.get("s_s", {}), "note": members.pop("padding", "")}
    with TestClient(build_app(scripted_engine(ScriptedModel("a", "b")))) as client:
        response = client.post(PREDICT, json={"model": "speaker", "gmap": gmap, **members})
    assert response.status_code == 200, response.text
    assert (response.headers["content-type"] == "application/octet-stream") is streams
    assert len(parse_messages(response.text)) == (3 if streams else 1)


@pytest.mark.parametrize(
    ("query", "named", "model"),
    [("", None, "echo-fp32"), ("?model=detector-1", None, "detector"), ("?model=echo-fp32", "detector", "detector")],
)
def test_request_waits_in_the_queue_of_its_model(query: str, named: str | None, model: str) -> None:
    recorder = EventRecorder()
    echo = ModelSource(name="echo-fp32", version="1", folder=Path(), settings=ModelSettings(default=True))
    sources = [model_source("detector"), echo]
    engine = engine_of(sources, load_test_model, recorder)
    with TestClient(build_app(engine)) as client:
        assert client.post(PREDICT + query, json={"model": named} if named else {}).status_code == 400
    assert [event.model_name for event in recorder.events] == [model]
