"""Test KServe V1 where its golden cases say nothing: paths, model states, raw images, parameters and prompts."""

from typing import Any

import httpx
import pytest
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from app.core.protocols.kserve_v1.routes import KServeV1
from app.core.server.http.asgi import create_app
from tests.support.data.chariot import IMAGE, Client
from tests.support.data.images import encode_image, rectangle
from tests.support.servers.grpc_server import build_engine


def predict(client: Client, model: str, *instances: object, **body: object) -> httpx.Response:
    return client.post(f"/v1/models/{model}:predict", json={"instances": instances, **body})


def predictions(response: httpx.Response) -> list[Any]:
    assert response.status_code == 200, response.text
    return response.json()["predictions"]


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/detector"])
def test_paths_may_end_in_a_slash(client: Client, path: str) -> None:
    assert client.get(f"{path}/").json() == client.get(path).json()


def test_unknown_paths_and_methods_return_a_json_error(client: Client) -> None:
    for method, path, status in (
        ("GET", "/v1", 404),
        ("GET", "/v1/models/detector:predict", 405),
        ("POST", "/v1/models/detector:fly", 404),
        ("POST", "/v1/models/detector/versions/1:predict", 404),
        ("GET", f"/v1/models/{'x' * 5000}", 404),
    ):
        response = client.request(method, path)
        assert response.status_code == status, path
        assert list(response.json()) == ["error"]
        assert len(response.content) < 300


def test_loading_model_is_listed_but_not_ready() -> None:
    app = create_app(build_engine(("detector",), loaded=False), [KServeV1()], CollectorRegistry(), 1000)
    with TestClient(app) as client:
        assert client.get("/v1/models").json()["models"] == ["detector"]
        for response in (client.get("/v1/models/detector"), predict(client, "detector", 1)):
            assert response.status_code == 503
            assert response.json() == {"error": "Model with name detector is not ready. not loaded yet"}


# Images


@pytest.mark.parametrize(("file_format", "media_type"), [("PNG", "image/png"), ("JPEG", "IMAGE/X-ANY; quality=high")])
def test_raw_image_body_is_accepted(client: Client, file_format: str, media_type: str) -> None:
    content = encode_image(rectangle(), file_format)
    response = client.post("/v1/models/detector:predict", content=content, headers={"content-type": media_type})
    ((detection,),) = predictions(response)
    assert detection["label"] == "red"


def test_instance_parameters_override_request_parameters(client: Client) -> None:
    instances = [{"b64": IMAGE, "parameters": {"score_threshold": threshold}} for threshold in (0.0, 0.5, 1.0)]
    results = predictions(predict(client, "detector", *instances, IMAGE, parameters={"score_threshold": 0.2}))
    assert [len(detections) for detections in results] == [2, 1, 0, 2]


def test_metadata_is_returned_byte_for_byte(client: Client) -> None:
    text = b'{"extended_metadata" : [{"key":"\\u00e9","type":"float","value":1.50}],  "n": 1e400, "f": "caf\\udce9"}'
    body = b'{"instances":["%s",{"b64":"%s","parameters":{"metadata":%s}}]}' % (*[IMAGE.encode()] * 2, text)
    response = client.post("/v1/models/detector:predict", content=body)
    assert response.status_code == 200, response.text
    assert response.content.endswith(b'"parameters":[{},{"metadata":' + text + b"}]}")


@pytest.mark.parametrize(
    ("name", "value"), [("prompt", "why?"), ("prompts", ["why?"]), ("question", '["why?"]'), ("text", "why?")]
)
def test_prompts_are_accepted_under_every_name(client: Client, name: str, value: object) -> None:
    (answers,) = predictions(predict(client, "teller", {"b64": IMAGE, name: value}))
    assert [answer["prompt"] for answer in answers] == (value if isinstance(value, list) else [value])


def test_request_prompt_applies_to_images_without_their_own(client: Client) -> None:
    instances = [IMAGE, {"b64": IMAGE, "prompt": "mine"}]
    results = predictions(predict(client, "teller", *instances, parameters={"prompts": "ours"}))
    assert [[answer["prompt"] for answer in prediction] for prediction in results] == [["ours"], ["mine"]]


def test_content_type_parameter_does_not_turn_an_image_into_text(client: Client) -> None:
    instances = [IMAGE, {"b64": IMAGE, "parameters": {"content_type": "str"}}]
    assert len(predictions(predict(client, "teller", *instances))) == 2
    assert len(predictions(predict(client, "teller", *instances, parameters={"content_type": "str"}))) == 2
