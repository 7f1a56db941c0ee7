"""Test KServe V1: model listing, model states, predictions, and the forms of one instance."""

import json
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from app.core.protocols.kserve_v1.instances import Instance, read_instance
from app.core.protocols.kserve_v1.routes import KServeV1
from app.core.server.http.asgi import create_app
from tasks.inference.error import InferenceError
from tasks.inference.tensor import BytesTensor, Datatype, Tensor
from tasks.text.request import TEXT_INPUT
from tasks.vision.request import IMAGE_INPUT
from tests.support.data.chariot import IMAGE, Client
from tests.support.data.images import encode_base64, encode_image, rectangle
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


IMAGE_NAME, TEXT = IMAGE_INPUT.name, TEXT_INPUT.name


def read(instance: object, name: str = IMAGE_NAME, *, prompts: bool | None = None) -> Instance:
    takes_prompts = name == IMAGE_NAME if prompts is None else prompts
    return read_instance(msgspec.Raw(json.dumps(instance).encode()), "inputs[3]", name, prompts=takes_prompts)


def binary(instance: Instance) -> bytes:
    assert isinstance(instance.tensor, BytesTensor)
    (element,) = instance.tensor.elements
    return element.binary()


def text(instance: Instance) -> str:
    assert isinstance(instance.tensor, BytesTensor)
    (element,) = instance.tensor.elements
    return element.text()


@given(st.binary(), st.sampled_from(["", "b64", "image", "image_bytes", "data", "image b64"]))
def test_image_bytes_round_trip_in_every_form(data: bytes, form: str) -> None:
    instance: Any = encode_base64(data)
    for name in reversed(form.split()):
        instance = {name: instance}
    parsed = read(instance)
    assert binary(parsed) == data
    assert parsed.tensor.name == "image"
    assert parsed.body_path("data[0]") == ".".join(["inputs[3]", *form.split()])


@pytest.mark.parametrize("name", ["text", "prompt", "question", TEXT])
@pytest.mark.parametrize("value", ["Ann", "", "[not JSON", '{"b64": "QQ=="}', "data:text/plain,a", "Bår"])
def test_texts_round_trip_in_every_form(name: str, value: str) -> None:
    for instance, path in (
        (value, "inputs[3]"),
        ({name: value}, f"inputs[3].{name}"),
        ({"b64": encode_base64(value.encode())}, "inputs[3].b64"),
        ({name: {"b64": encode_base64(value.encode())}}, f"inputs[3].{name}.b64"),
    ):
        parsed = read(instance, TEXT)
        assert text(parsed) == value
        assert parsed.body_path("data[0]") == path


@pytest.mark.parametrize(
    ("instance", "path", "message"),
    [
        (5, "inputs[3]", "Expected a text"),
        ({}, "inputs[3]", 'Expected the text under "text" or "b64"'),
        ({"text": "a", "prompt": "b"}, "inputs[3]", "got 'text' and 'prompt'"),
        ({"text": "a", "max_new_tokens": 5}, "inputs[3]", "Expected nothing but the text"),
        ({"text": [1]}, "inputs[3].text", "Expected a text"),
        ({"b64": "*"}, "inputs[3].b64", "Expected base64"),
    ],
)
def test_invalid_text_is_rejected_with_its_path(instance: object, path: str, message: str) -> None:
    with pytest.raises(InferenceError) as caught:
        read(instance, TEXT)
    assert caught.value.path == path
    assert message in caught.value.message


@pytest.mark.parametrize("name", ["prompt", "text"])
def test_prompt_for_a_model_without_prompts_is_rejected(name: str) -> None:
    assert read({"b64": "", name: "why?"}).tensor.parameters == {"prompts": ["why?"]}
    with pytest.raises(InferenceError) as caught:
        read({"b64": "", name: "why?"}, prompts=False)
    assert caught.value.message == f"Expected nothing but the image, and \"parameters\", got '{name}' too"


def test_pixel_rows_become_a_tensor() -> None:
    for instance, base_path in (([[1, 2], [3, 4]], "inputs[3]"), ({"image": [[1, 2], [3, 4]]}, "inputs[3].image")):
        parsed = read(instance)
        assert isinstance(parsed.tensor, Tensor)
        assert parsed.tensor.datatype is Datatype.UINT8
        assert parsed.tensor.data.tolist() == [[1, 2], [3, 4]]
        assert parsed.body_path("data[1][0]") == f"{base_path}[1][0]"
        for field in ("data", "shape", "datatype"):
            assert parsed.body_path(field) == base_path
        assert parsed.body_path("") == "inputs[3]"


def test_parameter_errors_name_their_path() -> None:
    parsed = read({"b64": "", "prompt": "a", "parameters": {"top_k": 1, "labels": ["a"]}})
    assert parsed.body_path("parameters.top_k") == "inputs[3].parameters.top_k"
    assert parsed.body_path("parameters.labels[0]") == "inputs[3].parameters.labels[0]"
    assert parsed.body_path("parameters.seed") == "parameters.seed"
    assert parsed.body_path("parameters.prompts[0]") == "inputs[3].prompt[0]"
    assert read("").body_path("parameters.prompts") == "parameters.prompts"


def test_parameters_are_passed_to_the_tensor() -> None:
    parsed = read({"image": "", "question": "a", "parameters": {"top_k": 1, "metadata": {"a": 1.50}}})
    assert parsed.tensor.parameters["top_k"] == 1
    assert parsed.tensor.parameters["prompts"] == ["a"]
    assert parsed.tensor.parameters["metadata"] == msgspec.Raw(b'{"a": 1.5}')
    assert "content_type" not in read({"image": "", "parameters": {"content_type": "str"}}).tensor.parameters
