"""KServe's V1 protocol: which models there are, in which state, and what they predict."""

import gzip
import json
import threading
import zlib
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from litestar import Litestar
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from app.engine.events import InferenceEvent
from app.engine.registry import ModelState
from app.engine.servable import Servable
from app.protocols.kserve_v1.routes import KServeV1
from app.server.asgi import create_app
from app.settings.model import ModelError, ModelSource
from tests.support.chariot import PICTURE
from tests.support.grpc_server import built
from tests.support.pictures import base64_text, encoded, rectangle
from tests.support.served import EVERYTHING, application, build, load_any, source

Client = TestClient[Litestar]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with TestClient(build(EVERYTHING)) as client:
        yield client


def predict(client: Client, model: str, *instances: object, **body: object) -> httpx.Response:
    return client.post(f"/v1/models/{model}:predict", json={"instances": instances, **body})


def predictions(response: httpx.Response) -> list[Any]:
    assert response.status_code == 200, response.text
    return response.json()["predictions"]


def test_every_model_is_listed_and_ready(client: Client) -> None:
    names = client.get("/v1/models").json()["models"]
    assert names == sorted(EVERYTHING)
    for name in names:
        assert client.get(f"/v1/models/{name}").json() == {"name": name, "ready": True}


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/detector"])
def test_paths_may_end_in_a_slash(client: Client, path: str) -> None:
    assert client.get(f"{path}/").json() == client.get(path).json()


def test_the_same_path_may_be_asked_again(client: Client) -> None:
    for _ in range(3):
        assert predictions(predict(client, "half_plus_two", 1)) == [2.5]


def test_what_is_not_served_is_refused_in_the_same_shape(client: Client) -> None:
    for method, path, status in (
        ("GET", "/v1", 404),
        ("GET", "/v1/models/detector:predict", 404),
        ("POST", "/v1/models", 405),
        ("DELETE", "/v1/models/detector", 405),
        ("POST", "/v1/models/detector:fly", 404),
        ("POST", "/v1/models/detector/versions/1:predict", 404),
        ("GET", f"/v1/models/{'x' * 5000}", 404),
    ):
        response = client.request(method, path)
        assert response.status_code == status, path
        assert list(response.json()) == ["error"]
        assert len(response.content) < 300


# A model in every state


def unready(client: Client, name: str) -> list[str]:
    """What is said of a model that cannot answer, when it is looked at and when it is asked."""
    said: list[str] = []
    for response in (client.get(f"/v1/models/{name}"), predict(client, name, 1)):
        assert response.status_code == 503, response.text
        assert list(response.json()) == ["error"]
        said.append(response.json()["error"])
    return said


def test_a_model_that_loads() -> None:
    app = create_app(built(("detector",), loaded=False), [KServeV1()], CollectorRegistry(), 1000)
    with TestClient(app) as client:
        assert client.get("/v1/models").json() == {"models": ["detector"]}
        assert unready(client, "detector") == ["Model with name detector is not ready. not loaded yet"] * 2


def test_a_model_that_failed_to_load_leaves_the_others_serving() -> None:
    def load(wanted: ModelSource) -> Servable:
        if wanted.name == "half_plus_three":
            raise ModelError("its file is damaged")
        return load_any(wanted)

    sources = [source("half_plus_two"), source("half_plus_three")]
    with TestClient(application(sources, load)) as client:
        said = ["Model with name half_plus_three is not ready. its file is damaged"] * 2
        assert unready(client, "half_plus_three") == said
        assert predictions(predict(client, "half_plus_two", 1)) == [2.5]


def test_a_model_that_is_unloaded_and_loaded_again() -> None:
    with TestClient(build(("half_plus_two",))) as client:
        for _ in range(2):
            assert client.post("/v2/repository/models/half_plus_two/unload").status_code == 200
            assert unready(client, "half_plus_two") == ["Model with name half_plus_two is not ready. unloaded"] * 2
            assert client.get("/v1/models").json() == {"models": ["half_plus_two"]}
            assert client.post("/v2/repository/models/half_plus_two/load").status_code == 200
            assert predictions(predict(client, "half_plus_two", 1)) == [2.5]


def test_a_server_that_is_offline_is_not_ready_and_answers() -> None:
    engine = built(("detector",))
    with TestClient(create_app(engine, [KServeV1()], CollectorRegistry(), 100_000)) as client:
        engine.online = False
        response = client.get("/v1/models/detector")
        assert response.status_code == 503
        assert response.json() == {
            "error": "Model with name detector is not ready. The server was taken offline by its operator"
        }
        assert len(predictions(predict(client, "detector", PICTURE))) == 1
        engine.online = True
        assert client.get("/v1/models/detector").status_code == 200


def test_a_model_that_is_replaced_while_it_is_asked_answers_all_the_same() -> None:
    """What began with one version of a model ends with a version of it, however often it is loaded in between."""
    with TestClient(build(("half_plus_two",))) as client:
        asking = threading.Event()
        asked: list[int] = []

        def ask() -> None:
            while not asking.is_set() or len(asked) < 20:
                asked.append(predict(client, "half_plus_two", 1).status_code)
                if len(asked) > 2000:
                    return

        thread = threading.Thread(target=ask)
        thread.start()
        for _ in range(5):
            assert client.post("/v2/repository/models/half_plus_two/load").status_code == 200
        asking.set()
        thread.join(60)
        assert set(asked) == {200}


class Seen:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.events: list[InferenceEvent] = []

    def observe(self, event: InferenceEvent, /) -> None:
        self.events.append(event)


def test_every_request_is_observed_once() -> None:
    seen = Seen()
    app = create_app(built(("detector", "failing"), observers=[seen]), [KServeV1()], CollectorRegistry(), 100_000)
    with TestClient(app) as client:
        predict(
            client,
            "detector",
            PICTURE,
            {"b64": PICTURE, "parameters": {"metadata": '[{"key":"a","type":"str","value":"b"}]'}},
        )
        predict(client, "detector")
        predict(client, "nobody", PICTURE)
        predict(client, "failing", PICTURE)
        client.get("/v1/models/nobody")
    outcomes = [(each.caller.protocol, each.model_name, each.outcome, each.batch_size) for each in seen.events]
    assert outcomes == [
        ("kserve-v1", "detector", None, 2),
        ("kserve-v1", "detector", "invalid_request", 0),
        ("kserve-v1", "nobody", "model_not_found", 0),
        ("kserve-v1", "failing", "model_failed", 0),
    ]
    assert [entry.key for entry in seen.events[0].metadata[0].entries] == ["a"]


def test_ids_of_the_request_come_back(client: Client) -> None:
    response = client.post("/v1/models/half_plus_two:predict", json={"instances": [1]}, headers={"x-request-id": "a1"})
    assert response.headers["x-request-id"] == "a1"
    assert predict(client, "half_plus_two", 1).headers["x-request-id"]


# Images


FORMS: list[tuple[str, Any]] = [
    ("base64", PICTURE),
    ("data URI", f"data:image/png;base64,{PICTURE}"),
    ("URL-safe base64", PICTURE.replace("+", "-").replace("/", "_").rstrip("=")),
    ("b64", {"b64": PICTURE}),
    ("image", {"image": PICTURE}),
    ("image of b64", {"image": {"b64": PICTURE}}),
    ("image_bytes", {"image_bytes": {"b64": PICTURE}}),
    ("data", {"data": PICTURE}),
    ("pixels", rectangle().tolist()),
    ("image of pixels", {"image": rectangle().tolist()}),
    ("with parameters", {"b64": PICTURE, "parameters": {}}),
    ("with null parameters", {"b64": PICTURE, "parameters": None}),
]


@pytest.mark.parametrize("key", ["instances", "inputs"])
@pytest.mark.parametrize("form", [form for _, form in FORMS], ids=[name for name, _ in FORMS])
def test_every_form_of_an_image_is_answered_alike(client: Client, key: str, form: object) -> None:
    response = client.post("/v1/models/detector:predict", json={key: [form]})
    ((found,),) = predictions(response)
    assert found == {"label": "red", "score": 0.9, "xmin": 10.0, "ymin": 8.0, "xmax": 30.0, "ymax": 40.0}
    assert list(response.json()) == ["predictions"]


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_pixels_of_any_channels(client: Client, channels: int) -> None:
    pixels = rectangle(colour=(255, 255, 255))[:, :, [0, 1, 2, 0]][:, :, :channels]
    assert len(predictions(predict(client, "detector", pixels.tolist()))[0]) == 1


@pytest.mark.parametrize("file_format", ["PNG", "JPEG", "WEBP", "BMP"])
@pytest.mark.parametrize("media_type", ["image/png", "image/jpeg", "IMAGE/X-ANY; quality=high"])
def test_a_body_that_is_an_image(client: Client, file_format: str, media_type: str) -> None:
    content = encoded(rectangle(), file_format)
    response = client.post("/v1/models/detector:predict", content=content, headers={"content-type": media_type})
    ((found,),) = predictions(response)
    assert found["label"] == "red"


def test_each_instance_has_its_own_parameters_over_those_of_the_request(client: Client) -> None:
    instances = [{"b64": PICTURE, "parameters": {"score_threshold": each}} for each in (0.0, 0.5, 1.0)]
    found = predictions(predict(client, "detector", *instances, PICTURE, parameters={"score_threshold": 0.2}))
    assert [len(each) for each in found] == [2, 1, 0, 2]


def test_metadata_comes_back_byte_for_byte(client: Client) -> None:
    text = b'{"extended_metadata" : [{"key":"\\u00e9","type":"float","value":1.50}],  "n": 1e400}'
    body = b'{"instances":["%s",{"b64":"%s","parameters":{"metadata":%s}}]}' % (
        PICTURE.encode(),
        PICTURE.encode(),
        text,
    )
    response = client.post("/v1/models/detector:predict", content=body)
    assert response.status_code == 200, response.text
    assert response.content.endswith(b'"parameters":[{},{"metadata":' + text + b"}]}")


def test_metadata_with_an_image_text_model(client: Client) -> None:
    instance = {"image": PICTURE, "prompts": ["a", "b"], "parameters": {"metadata": "m"}}
    response = predict(client, "teller", instance)
    assert response.json() == {
        "predictions": [[{"prompt": "a", "answer": "64x48"}, {"prompt": "b", "answer": "64x48"}]],
        "parameters": [{"metadata": "m"}],
    }


@pytest.mark.parametrize("name", ["prompt", "prompts", "question", "text"])
@pytest.mark.parametrize("value", ["why?", ["why?"], '["why?"]'])
def test_prompts_under_every_name(client: Client, name: str, value: object) -> None:
    (found,) = predictions(predict(client, "teller", {"b64": PICTURE, name: value}))
    assert [each["prompt"] for each in found] == (value if isinstance(value, list) else [value])


def test_a_prompt_of_the_request_is_put_to_every_image_without_its_own(client: Client) -> None:
    instances = [PICTURE, {"b64": PICTURE, "prompt": "mine"}]
    found = predictions(predict(client, "teller", *instances, parameters={"prompts": "ours"}))
    assert [[each["prompt"] for each in prediction] for prediction in found] == [["ours"], ["mine"]]


def test_an_image_stays_an_image_whatever_its_parameters_say(client: Client) -> None:
    instances = [PICTURE, {"b64": PICTURE, "parameters": {"content_type": "str"}}]
    assert len(predictions(predict(client, "teller", *instances))) == 2


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "identity"])
def test_bodies_may_be_compressed(client: Client, encoding: str) -> None:
    plain = json.dumps({"instances": [1]}).encode()
    packed = {"gzip": gzip.compress(plain), "deflate": zlib.compress(plain), "identity": plain}[encoding]
    headers = {"content-encoding": encoding}
    response = client.post("/v1/models/half_plus_two:predict", content=packed, headers=headers)
    assert predictions(response) == [2.5]


def test_states_are_those_of_the_registry() -> None:
    """A state that is added has to be thought of here."""
    assert set(ModelState) == {"LOADING", "READY", "UNAVAILABLE"}


def test_a_picture_of_the_limit_is_not_more_than_the_limit(client: Client) -> None:
    response = predict(client, "detector", *[base64_text(encoded(rectangle()))] * 64)
    assert len(predictions(response)) == 64
