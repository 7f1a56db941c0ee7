"""Every limit on every protocol that has it: at the bound an answer, above it a refusal in the protocol's own shape."""

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from litestar import Litestar
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from app.protocols import protocols_beside
from app.protocols.tensorflow_serving.routes import TensorFlowServing
from app.server.asgi import create_app, create_listener_app
from tests.support.limited import MOST_BYTES, limited
from tests.support.pictures import base64_text, encoded, rectangle

Client = TestClient[Litestar]


def picture(width: int = 40, height: int = 24) -> str:
    return base64_text(encoded(rectangle(width, height)))


SMALL, LONG, LARGE = picture(), base64_text(encoded(np.zeros((2, 101, 3), np.uint8))), picture(60, 51)


@pytest.fixture(scope="module")
def clients() -> Iterator[dict[str, Client]]:
    engine = limited()
    lean = [each for each in protocols_beside("chariot-v2") if each.name == "chariot-v2"]
    apps = {
        "": create_app(engine, protocols_beside("chariot-v2-kserve"), CollectorRegistry(), MOST_BYTES),
        "chariot-v2": create_app(engine, lean, CollectorRegistry(), MOST_BYTES),
        "tensorflow-serving": create_listener_app(engine, TensorFlowServing(), MOST_BYTES),
    }
    with ExitStack() as stack:
        yield {name: stack.enter_context(TestClient(app)) for name, app in apps.items()}


def v2_image(*data: str, name: str = "image", **parameters: Any) -> dict[str, Any]:
    return {"name": name, "shape": [len(data)], "datatype": "BYTES", "data": data, "parameters": parameters}


def chariot(model: str, images: list[Any], parameters: dict[str, Any]) -> tuple[str, Any]:
    return f"/v2/models/m-{model}/infer", {"inputs": [v2_image(*images, **parameters)]}


def kserve_v2(model: str, images: list[Any], parameters: dict[str, Any]) -> tuple[str, Any]:
    return f"/v2/models/{model}/infer", {"inputs": [v2_image(*images, **parameters)]}


def kserve_v1(model: str, images: list[Any], parameters: dict[str, Any]) -> tuple[str, Any]:
    instances = [{"image": {"b64": each}, "parameters": parameters} for each in images]
    return f"/v1/models/{model}:predict", {"instances": instances}


def grps(model: str, images: list[Any], parameters: dict[str, Any]) -> tuple[str, Any]:
    gmap = {
        "s_b": {f"i{index}": each for index, each in enumerate(images)},
        "s_s": {"parameters": json.dumps(parameters)},
    }
    return "/grps/v1/infer/predict", {"model": model, "gmap": gmap}


def tensorflow(model: str, images: list[Any], parameters: dict[str, Any]) -> tuple[str, Any]:
    prompts = parameters.get("prompts")
    rows = [{"image": {"b64": each}} | ({"prompts": prompts} if prompts else {}) for each in images]
    return f"/v1/models/{model}:predict", {"instances": rows}


def lines(model: str, images: list[Any], parameters: dict[str, Any]) -> tuple[str, Any]:
    body = "\n".join(json.dumps({"input": each, "parameters": parameters}) for each in images)
    return f"/v2/models/m-{model}/infer", body.encode()


Write = Callable[[str, list[Any], dict[str, Any]], tuple[str, Any]]
WAYS: dict[str, tuple[str, Write]] = {
    "chariot-v2-kserve": ("", chariot),
    "chariot-v2": ("chariot-v2", lines),
    "kserve-v2": ("", kserve_v2),
    "kserve-v1": ("", kserve_v1),
    "grps": ("", grps),
    "tensorflow-serving": ("tensorflow-serving", tensorflow),
}


def post(
    clients: dict[str, Client], way: str, model: str, images: list[Any], parameters: Any = None
) -> tuple[int, str]:
    """The status of an answer, and what it says of its error in its protocol's shape."""
    listener, write = WAYS[way]
    path, body = write(model, images, parameters or {})
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return sent(clients[listener], way, path, content)


def sent(client: Client, way: str, path: str, content: bytes, **headers: str) -> tuple[int, str]:
    media_type = "application/jsonl" if way == "chariot-v2" else "application/json"
    answer = client.post(path, content=content, headers={"Content-Type": media_type, **headers})
    if answer.status_code == 200:
        return 200, ""
    found = answer.json()
    if way == "grps":
        assert list(found) == ["status"]
        assert found["status"]["code"] == answer.status_code
        return answer.status_code, found["status"]["msg"]
    assert set(found) <= {"error", "detail"}
    return answer.status_code, found["error"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("images", "said"),
    [
        ([SMALL] * 5, "Expected at most 4 images or texts in one request, got 5"),
        ([LARGE], "Expected an image of at most 3,000 pixels, got 60x51 = 3,060"),
        ([SMALL, picture(60, 50), picture(60, 50)], "Expected images of at most 5,000 pixels in one request"),
        ([LONG], "Expected an image of at most 100 pixels in width and height, got 101x2"),
    ],
    ids=["inputs", "pixels", "pixels together", "side"],
)
def test_images_are_bounded(clients: dict[str, Client], way: str, images: list[str], said: str) -> None:
    assert post(clients, way, "detector", [SMALL] * 4) == (200, "")
    status, error = post(clients, way, "detector", images)
    assert status == 413
    assert said in error
    assert post(clients, way, "detector", [picture(60, 50)]) == (200, "")


@pytest.mark.parametrize("way", [way for way in WAYS if way != "tensorflow-serving"])
@pytest.mark.parametrize(
    ("fine", "parameters", "said"),
    [
        ({"prompts": ["a"] * 3}, {"prompts": ["a"] * 4}, "Expected at most 3 prompts in one request, got 4"),
        ({"prompts": ["a" * 50]}, {"prompts": ["a" * 51]}, "Expected at most 50 characters in one prompt, got 51"),
        ({"max_new_tokens": 20}, {"max_new_tokens": 21}, "Expected at most 20, got 21"),
    ],
    ids=["prompts", "length of a prompt", "new tokens"],
)
def test_questions_are_bounded(clients: dict[str, Client], way: str, fine: Any, parameters: Any, said: str) -> None:
    assert post(clients, way, "teller", [SMALL], fine) == (200, "")
    status, error = post(clients, way, "teller", [SMALL], parameters)
    assert status == 413
    assert said in error


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("more", "status", "said"),
    [
        (b'"x": ' + b"[" * 11 + b"]" * 11, 200, ""),
        (b'"x": ' + b"[" * 13 + b"]" * 13, 400, "Expected JSON nested 12 deep at most"),
        (b'"x": ' + b"[" * 20_000, 400, "Expected JSON nested 12 deep at most"),
        (b'"%s": 1' % (b"n" * 40), 200, ""),
        (b'"%s": 1' % (b"n" * 41), 413, "Expected at most 40 bytes in the name of a member"),
        (b'"x": {%s}' % b",".join(b'"%d": 1' % index for index in range(31)), 413, "Expected at most 30 members"),
        (b'"x": [%s]' % b",".join([b"1"] * 800), 413, "Expected at most 700 JSON values in one body"),
        (b'"x": %s' % (b"1" * 50_000), 400, ""),
        (b'"x": 1e999', 400, ""),
    ],
    ids=["deep", "deeper", "deepest", "name", "long name", "members", "values", "digits", "overflow"],
)
def test_json_is_bounded(clients: dict[str, Client], way: str, more: bytes, status: int, said: str) -> None:
    if way == "grps" and status == 200:
        pytest.skip("GRPS knows all fields that there are")
    listener, write = WAYS[way]
    path, body = write("detector", [SMALL], {})
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    found, error = sent(clients[listener], way, path, b"{" + more + b", " + content[1:])
    if said or status == 200:
        assert found == status, error
        assert said in error
    else:
        # Members that nobody reads may be any numbers.
        assert found in (200, 400)
    assert sent(clients[listener], way, path, content) == (200, "")


@pytest.mark.parametrize("way", WAYS)
def test_bodies_are_bounded_however_they_come(clients: dict[str, Client], way: str) -> None:
    listener, write = WAYS[way]
    client = clients[listener]
    path, body = write("detector", [SMALL], {})
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    whole = content + b" " * (MOST_BYTES - len(content))
    assert sent(client, way, path, whole) == (200, "")
    status, error = sent(client, way, path, whole + b" ")
    assert status == 413
    assert error
    packed = gzip.compress(whole)
    assert sent(client, way, path, packed, **{"Content-Encoding": "gzip"}) == (200, "")
    status, error = sent(client, way, path, gzip.compress(whole + b" "), **{"Content-Encoding": "gzip"})
    assert (status, error) == (413, "Expected at most 60,000 bytes after decompression, got more")

    def parts() -> Iterator[bytes]:
        yield from [whole, b" ", b" " * 100]

    media_type = "application/jsonl" if way == "chariot-v2" else "application/json"
    answer = client.post(path, content=parts(), headers={"Content-Type": media_type})
    assert answer.status_code == 413
    assert sent(client, way, path, content) == (200, "")


TENSOR: dict[str, tuple[str, Callable[[int], tuple[str, Any]]]] = {
    "kserve-v2": (
        "",
        lambda count: (
            "/v2/models/echo-fp32/infer",
            {"inputs": [{"name": "x", "shape": [1, count], "datatype": "FP32", "data": [0.5] * count}]},
        ),
    ),
    "kserve-v1": ("", lambda count: ("/v1/models/echo-fp32:predict", {"instances": [[0.5] * count]})),
    "grps": ("", lambda count: ("/grps/v1/infer/predict", {"model": "echo-fp32", "ndarray": [[0.5] * count]})),
    "tensorflow-serving": (
        "tensorflow-serving",
        lambda count: ("/v1/models/echo-fp32:predict", {"instances": [[0.5] * count]}),
    ),
}


@pytest.mark.parametrize("way", TENSOR)
def test_elements_of_json_are_bounded(clients: dict[str, Client], way: str) -> None:
    listener, written = TENSOR[way]
    for count, status, said in (
        (600, 200, ""),
        (601, 413, "Expected at most 600 tensor elements in one request, got 601"),
        (701, 413, "Expected at most 700 JSON values in one body"),
    ):
        path, body = written(count)
        found, error = sent(clients[listener], way, path, json.dumps(body).encode())
        assert found == status, error
        assert said in error


def binary(count: int) -> tuple[bytes, str]:
    head = {"name": "x", "shape": [1, count], "datatype": "FP32", "parameters": {"binary_data_size": 4 * count}}
    text = json.dumps({"inputs": [head]}).encode()
    return text + bytes(4 * count), str(len(text))


def bytes_elements(count: int) -> tuple[bytes, str]:
    head = {"name": "x", "shape": [1, count], "datatype": "BYTES", "parameters": {"binary_data_size": 4 * count}}
    text = json.dumps({"inputs": [head]}).encode()
    return text + bytes(4 * count), str(len(text))


@pytest.mark.parametrize(
    ("model", "written", "most", "said"),
    [
        ("echo-fp32", binary, 600, "Expected at most 600 tensor elements in one request, got 601"),
        (
            "echo-bytes",
            bytes_elements,
            30,
            "inputs[0].data: Expected at most 30 BYTES elements in one tensor, got more",
        ),
    ],
)
def test_binary_elements_are_bounded(
    clients: dict[str, Client], model: str, written: Callable[[int], tuple[bytes, str]], most: int, said: str
) -> None:
    for count, status in ((most, 200), (most + 1, 413)):
        body, length = written(count)
        headers = {"Inference-Header-Content-Length": length}
        answer = clients[""].post(f"/v2/models/{model}/infer", content=body, headers=headers)
        assert answer.status_code == status, answer.text
    assert said in answer.json()["error"]


def test_texts_are_bounded(clients: dict[str, Client]) -> None:
    for model in ("tagger", "continuer"):
        for length, status in ((50, 200), (51, 413)):
            found, error = post(clients, "kserve-v2", model, ["a" * length])
            assert found == status, error
        assert error == "inputs[0].data[0]: Expected at most 50 characters in one text, got 51"
    found, error = post(clients, "kserve-v2", "continuer", ["a"] * 4)
    assert (found, error) == (413, "inputs: Expected at most 3 texts in one request, got 4")


def test_names_and_ids_are_bounded(clients: dict[str, Client]) -> None:
    client = clients[""]
    for path in ("/v2/models/m-detector/infer", "/v2/models/detector/infer"):
        for fields, said in (
            ({"id": "i" * 41}, "id: Expected at most 40 bytes in a name, got 41"),
            (
                {"inputs": [v2_image(SMALL, name="n" * 41)]},
                "inputs[0].name: Expected at most 40 bytes in a name, got 41",
            ),
        ):
            body = json.dumps({"inputs": [v2_image(SMALL)], **fields}).encode()
            assert sent(client, "kserve-v2", path, body) == (413, said)
        body = json.dumps({"inputs": [v2_image(SMALL, name="n" * 40)], "id": "i" * 40}).encode()
        assert sent(client, "kserve-v2", path, body) == (200, "")


@pytest.mark.parametrize("header", ["x-request-id", "chariot-inference-base-id"])
def test_ids_in_headers_are_given_back_as_far_as_they_are_ids(client: Client, header: str) -> None:
    body = json.dumps({"inputs": [v2_image(SMALL)]}).encode()
    for length, given_back in ((1024, True), (1025, False)):
        headers = {header: "i" * length}
        answer = client.post("/v2/models/m-detector/infer", content=body, headers=headers)
        assert answer.status_code == 200
        assert (answer.headers.get(header) == "i" * length) == given_back
        assert len(answer.headers["x-request-id"]) <= 1024


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ([2**63, 2**63], "a shape for the 2 numbers"),
        ([2**62, 0], "sizes whose product can be counted"),
        ([-5], "sizes of 0 or more"),
        ([3], "a shape for the 2 numbers"),
        ([1] * 33, "at most 32 dimensions"),
        ([10**30], "a shape for the 2 numbers"),
    ],
)
def test_shapes_that_are_none_are_refused(clients: dict[str, Client], shape: list[int], said: str) -> None:
    data: list[float] = [] if 0 in shape else [0.5, 1]
    tensor = {"name": "x", "shape": shape, "datatype": "FP32", "data": data}
    body = json.dumps({"inputs": [tensor]}).encode()
    status, error = sent(clients[""], "kserve-v2", "/v2/models/echo-fp32/infer", body)
    assert status == 400
    assert said in error
