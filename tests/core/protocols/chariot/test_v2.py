"""Test chariot-v2 with JSON objects, JSON lines and raw images, where its golden cases say nothing."""

import json
from typing import Any

import httpx
import pytest
from litestar import Litestar
from litestar.testing import TestClient

from app.core.protocols.chariot_v2 import JSON_LINES, decode
from app.core.protocols.inference_call import JSON, RequestHead
from tasks.inference.error import InferenceError
from tasks.inference.limits import Limits
from tests.core.engine.engines import new_context
from tests.support.data.images import encode_base64, encode_image, rectangle

Client = TestClient[Litestar]
IMAGE = encode_image(rectangle())
IMAGE_BASE64 = encode_base64(IMAGE)
RED_BOX = {"label": "red", "score": 0.9, "xmin": 10.0, "ymin": 8.0, "xmax": 30.0, "ymax": 40.0}


def post(client: Client, content: bytes, content_type: str | None = JSON, **headers: str) -> httpx.Response:
    all_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    if content_type is not None:
        all_headers["content-type"] = content_type
    return client.post("/infer", content=content, headers=all_headers)


def request_object(**parameters: Any) -> dict[str, Any]:
    return {"input": IMAGE_BASE64, "parameters": parameters} if parameters else {"input": IMAGE_BASE64}


def json_lines(*objects: object) -> bytes:
    return b"\n".join(json.dumps(item).encode() for item in objects)


def error_message(response: httpx.Response, status: int = 400) -> str:
    """Check an error response and return its message, which both keys contain."""
    assert response.status_code == status
    assert response.headers["content-type"] == JSON
    body = response.json()
    assert list(body) == ["error", "detail"]
    assert body["error"] == body["detail"]
    return body["error"]


def test_blank_lines_and_carriage_returns_are_ignored(chariot_v2_client: Client) -> None:
    body = b"\n \r\n" + json_lines(request_object(), request_object()).replace(b"\n", b"\r\n\r\n") + b"\r\n\n"
    assert len(post(chariot_v2_client, body, JSON_LINES).text.splitlines()) == 2
    assert "at least one line" in error_message(post(chariot_v2_client, b"\n\n", JSON_LINES))


def test_metadata_is_returned_unchanged_with_its_output(chariot_v2_client: Client) -> None:
    metadata = '[ {"key":"a",  "type":"int","value":"1"} ]'
    single = post(chariot_v2_client, json.dumps(request_object(metadata=metadata, top_k=1)).encode())
    assert single.json() == {"output": [RED_BOX], "parameters": {"metadata": metadata}}
    several = post(
        chariot_v2_client, json_lines(request_object(), request_object(metadata=metadata)), JSON_LINES
    ).text.splitlines()
    assert [json.loads(line).get("parameters") for line in several] == [None, {"metadata": metadata}]
    header = '{"metadata":{"a" : 1.10}}'
    raw_image = post(chariot_v2_client, IMAGE, "image/png", chariot_inference_parameters=header)
    assert raw_image.text.endswith('"parameters":{"metadata":{"a" : 1.10}}}')


@pytest.mark.parametrize("header", ["", "{", "5", "[]", "null", '{"top_k": NaN}', '{"a": "\\ud800"}', "é" * 10])
def test_bad_parameters_header_error_names_the_header(chariot_v2_client: Client, header: str) -> None:
    headers = [(b"content-type", b"image/png"), (b"chariot-inference-parameters", header.encode("latin-1"))]
    message = error_message(chariot_v2_client.post("/infer", content=IMAGE, headers=headers))
    assert message.startswith("chariot-inference-parameters")
    assert "body" not in message


def test_body_of_too_many_lines_is_rejected_before_they_are_split() -> None:
    head, limits = RequestHead(target="m", headers={"content-type": JSON_LINES}), Limits(max_entries=30)
    line = json_lines(request_object())
    assert len(decode(head, line + b"\n" * 30, new_context(), limits).inputs) == 1
    with pytest.raises(InferenceError, match=r"at most 30 lines in one body \(--max-entries\), got 31"):
        decode(head, line + b"\n" * 31, new_context(), limits)
