"""Triton's generate extension: questions about a picture, answered whole or one event a token."""

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from litestar import Litestar
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from app.engine.engine import Engine
from app.engine.registry import Registry
from app.engine.repository import Repository
from app.protocols.kserve_v2.generate import WireGenerateRequest
from app.protocols.kserve_v2.routes import KServeV2
from app.protocols.status import http_status
from app.runtimes.onnxruntime.image_text_to_text import load
from app.server.asgi import create_app
from app.settings.model import ModelSettings, ModelSource
from tasks.exchange.error import ErrorKind
from tasks.exchange.limits import Limits
from tasks.image_text_to_text import GenerationParameters
from tasks.task import TaskType
from tests.support.pictures import base64_text, encoded, rectangle
from tests.support.speaker import Seen, Speaker, speaking

FIXTURES = Path(__file__).parents[3] / "fixtures"
PICTURE = base64_text(encoded(rectangle()))
SHAPE = base64_text((FIXTURES / "images" / "shape.jpg").read_bytes())
ASKED = {"text_input": "what?", "image": PICTURE}


def app_over(engine: Engine) -> Litestar:
    return create_app(engine, [KServeV2()], CollectorRegistry(), 2_000_000)


def events(body: bytes) -> list[dict[str, Any]]:
    """The data of server-sent events, each of which is one line and an empty one."""
    *blocks, rest = body.split(b"\n\n")
    assert rest == b""
    assert all(block.startswith(b"data: ") and b"\n" not in block for block in blocks)
    return [json.loads(block.removeprefix(b"data: ")) for block in blocks]


@pytest.fixture(scope="module")
def client() -> Generator[TestClient[Litestar]]:
    """A speaker that says "a red circle", among stand-ins."""
    with TestClient(app_over(speaking(Speaker("a", " red", " circle")))) as client:
        yield client


@pytest.fixture(scope="module")
def vlm() -> Generator[TestClient[Litestar]]:
    """The fixture model."""
    settings = ModelSettings(task_type=TaskType.IMAGE_TEXT_TO_TEXT)
    source = ModelSource(name="vlm", version="1", folder=FIXTURES / "models" / "vlm", settings=settings)
    registry = Registry([source])
    registry.load(source, load)
    repository = Repository(registry, lambda: [source], load)
    with TestClient(app_over(Engine(repository, [], Limits(), workers=2))) as client:
        yield client


@pytest.mark.parametrize("path", ["/v2/models/speaker", "/v2/models/speaker/versions/7"])
def test_an_answer_is_one_object(client: TestClient[Litestar], path: str) -> None:
    response = client.post(f"{path}/generate", json=ASKED)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {"model_name": "speaker", "model_version": "7", "text_output": "a red circle"}


def test_a_streamed_answer_is_an_event_a_piece(vlm: TestClient[Litestar]) -> None:
    asked = {"text_input": "Describe the picture.", "image": SHAPE, "id": "mine"}
    response = vlm.post("/v2/models/vlm/generate_stream", json=asked)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    assert "content-length" not in response.headers
    assert response.headers["x-request-id"]
    told = events(response.content)
    assert len(told) > 1
    assert {(each["id"], each["model_name"], each["model_version"]) for each in told} == {("mine", "vlm", "1")}
    assert all(each["text_output"] for each in told)


@pytest.mark.parametrize(
    "question", ["What is in the picture?", "What shape is in the picture?", "What color is the shape?", "w"]
)
@pytest.mark.parametrize("parameters", [{}, {"max_new_tokens": 2}, {"temperature": 2.0, "seed": 5}])
def test_the_pieces_joined_are_what_infer_answers(
    vlm: TestClient[Litestar], question: str, parameters: dict[str, Any]
) -> None:
    asked = {"text_input": question, "image": SHAPE, "parameters": parameters}
    tensor = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [SHAPE]}
    inferred = vlm.post(
        "/v2/models/vlm/infer", json={"inputs": [{**tensor, "parameters": {**parameters, "prompts": [question]}}]}
    )
    (answer,) = [json.loads(each)[0]["answer"] for each in inferred.json()["outputs"][0]["data"]]
    streamed = events(vlm.post("/v2/models/vlm/generate_stream", json=asked).content)
    assert "".join(each["text_output"] for each in streamed) == answer
    assert vlm.post("/v2/models/vlm/generate", json=asked).json()["text_output"] == answer


def test_a_model_that_cannot_stream_answers_in_one_event(client: TestClient[Litestar]) -> None:
    (event,) = events(client.post("/v2/models/teller/generate_stream", json=ASKED).content)
    assert event == {"model_name": "teller", "model_version": "7", "text_output": "64x48"}


@pytest.mark.parametrize("steps", [(), ("", "")])
def test_an_empty_answer_is_one_empty_event(steps: tuple[str, ...]) -> None:
    with TestClient(app_over(speaking(Speaker(*steps)))) as client:
        (event,) = events(client.post("/v2/models/speaker/generate_stream", json=ASKED).content)
    assert event["text_output"] == ""


def test_metadata_is_given_back_once(client: TestClient[Litestar]) -> None:
    metadata = [{"key": "k", "type": "int", "value": "12345678901234567890.0"}]
    asked = {**ASKED, "parameters": {"metadata": metadata}}
    assert client.post("/v2/models/speaker/generate", json=asked).json()["parameters"] == {"metadata": metadata}
    first, *others = events(client.post("/v2/models/speaker/generate_stream", json=asked).content)
    assert first["parameters"] == {"metadata": metadata}
    assert not any("parameters" in each for each in others)


@pytest.mark.parametrize(
    "image",
    [
        {"image": f"data:image/png;base64,{PICTURE}"},
        {"images": [PICTURE]},
        {"image": None, "images": [PICTURE], "id": None, "parameters": None},
    ],
)
def test_the_ways_to_send_a_picture(client: TestClient[Litestar], image: dict[str, Any]) -> None:
    response = client.post("/v2/models/teller/generate", json={"text_input": "size?", **image})
    assert response.json()["text_output"] == "64x48"


def test_generation_parameters_stand_at_the_top_or_among_the_parameters(vlm: TestClient[Litestar]) -> None:
    asked = {"text_input": "What is in the picture?", "image": SHAPE, "unknown": 1}

    def length(**more: Any) -> int:
        return len(events(vlm.post("/v2/models/vlm/generate_stream", json={**asked, **more}).content))

    whole = length()
    assert whole > 2
    assert length(max_new_tokens=2) == length(parameters={"max_new_tokens": 2}) < whole
    assert length(max_new_tokens=1, parameters={"max_new_tokens": 2, "stream": True}) == length(max_new_tokens=2)


def test_the_parameters_at_the_top_are_those_of_the_task() -> None:
    own = {"text_input", "image", "images", "id", "parameters"}
    assert set(WireGenerateRequest.__struct_fields__) - own == set(GenerationParameters.__struct_fields__) - {"prompts"}


@pytest.mark.parametrize("path", ["generate", "generate_stream"])
@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"image": PICTURE}, "missing required field `text_input`"),
        ({"text_input": "what?"}, "Expected either image or images"),
        ({**ASKED, "images": [PICTURE]}, "Expected either image or images"),
        ({"text_input": "what?", "images": []}, "images: Expected one image, got 0"),
        ({"text_input": "what?", "images": [PICTURE, PICTURE]}, "images: Expected one image, got 2"),
        ({**ASKED, "text_input": 5}, "text_input: Expected `str`, got `int`"),
        ({**ASKED, "image": 5}, "image: Expected `str | null`, got `int`"),
        ({**ASKED, "image": "%%%"}, "image: Expected base64"),
        ({**ASKED, "image": ""}, "image: "),
        ({"text_input": "what?", "images": ["AAAA"]}, "images[0]: "),
        ({**ASKED, "parameters": {"prompts": ["more"]}}, "parameters.prompts: Expected the question in text_input"),
        ({**ASKED, "parameters": {"temperature": -1}}, "parameters.temperature: "),
        ({**ASKED, "parameters": {"temperature": "hot"}}, "parameters.temperature: "),
        ({**ASKED, "temperature": -1}, "temperature: "),
        ({**ASKED, "max_new_tokens": 0}, "max_new_tokens: "),
        ({**ASKED, "max_new_tokens": 1, "parameters": {"max_new_tokens": 0}}, "parameters.max_new_tokens: "),
        ({**ASKED, "parameters": 5}, "parameters: "),
        ([ASKED], "Expected `object`, got `array`"),
    ],
)
def test_a_bad_body_is_refused_by_its_field(client: TestClient[Litestar], path: str, body: Any, error: str) -> None:
    response = client.post(f"/v2/models/speaker/{path}", json=body)
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/json"
    message = response.json()["error"]
    assert message.startswith(error) if ": " in error else error in message, message


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b'{"text_input": NaN}', b"[" * 100_000])
def test_what_is_no_json_is_refused(client: TestClient[Litestar], content: bytes) -> None:
    response = client.post("/v2/models/speaker/generate_stream", content=content)
    assert response.status_code == 400
    assert response.json()["error"]


@pytest.mark.parametrize("path", ["generate", "generate_stream"])
@pytest.mark.parametrize(
    ("model", "status", "error"),
    [
        ("nobody", 404, "Model 'nobody' is not known"),
        ("speaker/versions/8", 404, "Model 'speaker' has no version '8'"),
        ("detector", http_status(ErrorKind.UNSUPPORTED), "Model 'detector' (OBJECT_DETECTION) does not generate text"),
    ],
)
def test_models_that_do_not_answer(
    client: TestClient[Litestar], path: str, model: str, status: int, error: str
) -> None:
    response = client.post(f"/v2/models/{model}/{path}", json=ASKED)
    assert response.status_code == status
    assert response.json()["error"].startswith(error)


@pytest.mark.parametrize(("text", "error"), [(" ", "Expected a question"), ("<image> what?", "control tokens")])
@pytest.mark.parametrize("path", ["generate", "generate_stream"])
def test_a_question_that_the_model_refuses(vlm: TestClient[Litestar], path: str, text: str, error: str) -> None:
    response = vlm.post(f"/v2/models/vlm/{path}", json={"text_input": text, "image": SHAPE})
    assert response.status_code == 400
    assert response.json()["error"].startswith("text_input: ")
    assert error in response.json()["error"]


def test_an_error_before_the_first_event_is_a_status_and_later_an_event() -> None:
    for steps, told in (((), None), (("a", "b"), ["a", "b"])):
        with TestClient(app_over(speaking(Speaker(*steps, RuntimeError("a wire came off"))))) as client:
            response = client.post("/v2/models/speaker/generate_stream", json=ASKED)
            whole = client.post("/v2/models/speaker/generate", json=ASKED)
        assert whole.status_code == 500
        assert whole.json() == {"error": "The model failed: a wire came off"}
        if told is None:
            assert (response.status_code, response.json()) == (500, whole.json())
        else:
            *said, last = events(response.content)
            assert (response.status_code, last) == (200, whole.json())
            assert [each["text_output"] for each in said] == told


def test_streams_are_observed_as_every_inference_is() -> None:
    seen = Seen()
    with TestClient(app_over(speaking(Speaker("a"), seen))) as client:
        client.post("/v2/models/speaker/generate_stream", json=ASKED, headers={"X-Request-ID": "r1"})
        client.post("/v2/models/nobody/generate", json=ASKED, headers={"X-Request-ID": "r2"})
    assert [(each.caller.protocol, each.caller.request_id, each.outcome) for each in seen.events] == [
        ("kserve-v2", "r1", None),
        ("kserve-v2", "r2", ErrorKind.MODEL_NOT_FOUND),
    ]
