"""Bad input to chariot-v2-kserve: each is refused with a sentence, and the server goes on."""

import json
import struct
import zlib

import pytest

from tests.support.application import MAX_REQUEST_BYTES
from tests.support.chariot import Client, image_input, infer, items
from tests.support.pictures import base64_text, encoded, rectangle


def one_input(**fields: object) -> dict[str, object]:
    """A request of one input, some of whose fields are replaced."""
    return {"inputs": [{**image_input(), **fields}]}


def pixels(shape: list[int], data: list[float], datatype: str = "UINT8") -> dict[str, object]:
    """A request of raw pixels."""
    return one_input(shape=shape, data=data, datatype=datatype)


def parameters(**given: object) -> dict[str, object]:
    """A request of one image with parameters."""
    return one_input(parameters=given)


def body_with(name: bytes, raw: bytes) -> bytes:
    """A request one of whose parameters is written as `raw`."""
    return json.dumps(parameters(marker=0)).encode().replace(b'"marker": 0', b'"' + name + b'": ' + raw)


BAD_INPUTS: list[tuple[str, object, int, str]] = [
    ("empty body", b"", 400, "empty body"),
    ("white space", b"  \n", 400, "empty body"),
    ("bad JSON", b'{"inputs": [', 400, "JSON"),
    ("not an object", b"[]", 400, "object"),
    ("not UTF-8", b'{"inputs": [{"name": "\xff"}]}', 400, "UTF-8"),
    ("NaN", body_with(b"score_threshold", b"NaN"), 400, "inputs[0].parameters.score_threshold"),
    ("overflow", body_with(b"score_threshold", b"1e999"), 400, "inputs[0].parameters.score_threshold"),
    ("lone surrogate", b'{"inputs": [{"name": "\\ud800"}]}', 400, "inputs[0].name"),
    ("half in metadata", body_with(b"metadata", b'"\\udfff"'), 400, "inputs[0].parameters.metadata"),
    ("deep", b'{"inputs":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, "100 deep"),
    ("deep parameter", body_with(b"x", b"[" * 5000 + b"]" * 5000), 400, "deep"),
    ("bytes in metadata", body_with(b"metadata", b'"\xff"'), 400, "inputs[0].parameters.metadata"),
    ("sizes past counting", pixels([0, 2**63 - 1, 2**63 - 1], []), 400, "inputs[0].shape"),
    ("a free size past counting", pixels([-1, 2**62, 2**62], []), 400, "inputs[0].shape"),
    ("no raw images", pixels([0, 4, 4, 3], []), 400, "inputs[0].shape"),
    ("labels too deep", parameters(labels="[" * 100_000), 400, "inputs[0].parameters.labels"),
    ("no inputs", {}, 400, "inputs"),
    ("empty inputs", {"inputs": []}, 400, "inputs"),
    ("inputs of another type", {"inputs": "x"}, 400, "inputs"),
    ("id of another type", {"inputs": [image_input()], "id": 5}, 400, "id"),
    *[
        (f"no {field}", {"inputs": [{key: value for key, value in image_input().items() if key != field}]}, 400, field)
        for field in ("name", "shape", "datatype", "data")
    ],
    ("name of another type", one_input(name=5), 400, "inputs[0].name"),
    ("shape of another type", one_input(shape=["a"]), 400, "inputs[0].shape[0]"),
    ("unknown datatype", one_input(datatype="STRING"), 400, "inputs[0].datatype"),
    ("data of another type", {"inputs": [image_input([5])]}, 400, "inputs[0].data[0]"),
    ("null data", one_input(data=None), 400, "inputs[0].data"),
    ("no data", {"inputs": [image_input([])]}, 400, "inputs[0].data"),
    ("parameters of another type", one_input(parameters=[1]), 400, "inputs[0].parameters"),
    ("bad base64", {"inputs": [image_input("!!!!")]}, 400, "inputs[0].data[0]: Expected base64"),
    ("long bad base64", {"inputs": [image_input(), image_input("*" + "A" * 5000)]}, 400, "inputs[1].data[0]"),
    ("bad data URI", {"inputs": [image_input("data:image/png,xx")]}, 400, "inputs[0].data[0]"),
    ("empty string", {"inputs": [image_input("")]}, 400, "inputs[0].data[0]"),
    ("not an image", {"inputs": [image_input(base64_text(b"hello, world"))]}, 400, "inputs[0].data[0]"),
    ("an empty image", pixels([0, 4, 3], []), 400, "inputs[0]"),
    ("pixels out of range", pixels([1, 1], [256]), 400, "inputs[0].data"),
    ("pixels of another kind", pixels([1, 1], [1.5]), 400, "inputs[0].data[0]"),
    ("bright fractions", pixels([1, 1], [200.0], "FP32"), 400, "inputs[0].data"),
    ("pixels that do not fit", pixels([2, 2], [1]), 400, "inputs[0].shape"),
    ("too many free sizes", pixels([-1, -1], [1]), 400, "inputs[0].shape"),
    ("five dimensions", pixels([1, 1, 1, 1, 1], [1]), 400, "inputs[0].shape"),
    ("forty dimensions", pixels([1] * 40, [1]), 400, "inputs[0].shape"),
    ("threshold as text", parameters(score_threshold="0.5"), 400, "inputs[0].parameters.score_threshold"),
    ("threshold as bool", parameters(score_threshold=True), 400, "inputs[0].parameters.score_threshold"),
    ("threshold out of range", parameters(score_threshold=1.5), 400, "inputs[0].parameters.score_threshold"),
    ("IoU threshold as text", parameters(iou_threshold="x"), 400, "inputs[0].parameters.iou_threshold"),
    ("top_k of 0", parameters(top_k=0), 400, "inputs[0].parameters.top_k"),
    ("labels as number", parameters(labels=5), 400, "inputs[0].parameters.labels"),
    ("labels of numbers", parameters(labels=[5]), 400, "inputs[0].parameters.labels[0]"),
    ("action as number", parameters(action=5), 400, "inputs[0].parameters.action"),
    ("too many inputs", {"inputs": [image_input("aaaa")] * 1000}, 413, "inputs"),
    ("too many images", {"inputs": [image_input(["aaaa"] * 1000)]}, 413, "inputs"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "status", "said"), [case[1:] for case in BAD_INPUTS], ids=[case[0] for case in BAD_INPUTS]
)
def test_bad_input_is_refused_with_a_sentence(client: Client, body: object, status: int, said: str) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    response = client.post("/v2/models/m-detector/infer", content=content)
    assert response.status_code == status
    assert list(response.json()) == ["error"]
    assert said in response.json()["error"]
    assert items(infer(client, "detector", image_input())), "the server goes on"


@pytest.mark.parametrize(
    "prompts", [5, [5], {"a": "b"}, "[5]", "[broken", "[" * 100_000], ids=lambda each: str(each)[:9]
)
def test_prompts_of_the_wrong_type(client: Client, prompts: object) -> None:
    response = infer(client, "teller", image_input(prompts=prompts))
    assert response.status_code == 400
    assert "inputs[0].parameters.prompts" in response.json()["error"]


@pytest.mark.parametrize(
    "given",
    [{"max_new_tokens": 0}, {"max_new_tokens": 1.5}, {"temperature": -1}, {"temperature": "hot"}, {"seed": -1}],
    ids=str,
)
def test_generation_parameters_of_the_wrong_type(client: Client, given: dict[str, float]) -> None:
    response = infer(client, "teller", image_input("aaaa", "image-0", **given))
    assert response.status_code == 400
    assert f"inputs[0].parameters.{next(iter(given))}" in response.json()["error"]


def test_amounts_over_the_limit(client: Client) -> None:
    assert infer(client, "teller", image_input(prompts=["?"] * 257)).status_code == 413
    assert infer(client, "teller", image_input(max_new_tokens=10**6)).status_code == 413
    assert "texts only" in infer(client, "teller", image_input("?", name="prompt")).json()["error"]


@pytest.mark.parametrize("share", [0.3, 0.9])
@pytest.mark.parametrize("file_format", ["PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF"])
def test_truncated_images(client: Client, file_format: str, share: float) -> None:
    whole = encoded(rectangle(200, 150), file_format)
    response = infer(client, "detector", image_input(base64_text(whole[: int(len(whole) * share)])))
    assert response.status_code == 400
    assert response.json()["error"].startswith("inputs[0].data[0]: ")


def test_a_bomb_is_refused_from_its_header(client: Client) -> None:
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + header
    bomb = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    response = infer(client, "detector", image_input(base64_text(bomb)))
    assert response.status_code == 413
    assert "60000x60000" in response.json()["error"]


def test_a_body_over_the_limit(client: Client) -> None:
    response = client.post("/v2/models/m-detector/infer", content=b"x" * (MAX_REQUEST_BYTES + 1))
    assert response.status_code == 413
    assert response.json() == {"error": "The body is larger than this server accepts"}


def test_unknown_models_versions_paths_and_methods(client: Client) -> None:
    body = {"inputs": [image_input()]}
    for path in ("/v2/models/m-nobody/infer", "/v2/models/m-detector/versions/9/infer", "/v2/models/nobody/infer"):
        assert client.post(path, json=body).status_code == 404
        assert list(client.post(path, json=body).json()) == ["error"]
    bare = client.post("/infer", json=body)
    assert bare.status_code == 404
    assert "/v2/models/m-detector/infer" in bare.json()["error"]
    assert client.get("/nowhere").json() == {"error": "Nothing is served at /nowhere"}
    assert client.get("/infer").status_code == 405
    assert list(client.get("/infer").json()) == ["error"]


def test_a_failing_model_is_a_500_that_says_so(client: Client) -> None:
    response = infer(client, "failing", image_input())
    assert response.status_code == 500
    assert response.json() == {"error": "The model failed: a model that fails on 1"}
    assert items(infer(client, "detector", image_input())), "the others go on"


def test_simplification_beyond_measure_is_refused(client: Client) -> None:
    response = infer(client, "segmenter", image_input(epsilon=1e30))
    assert response.status_code == 400
    assert "inputs[0].parameters.epsilon" in response.json()["error"]


def test_refusals_before_the_body_is_read_are_named_and_counted(client: Client) -> None:
    response = client.post("/v2/models/m-nobody/infer", content=b"")
    assert response.status_code == 404
    assert response.headers["x-request-id"]
    assert 'outcome="model_not_found"' in client.get("/metrics").text
