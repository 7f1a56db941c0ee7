"""Test every limit of every protocol: requests at the limit are answered, requests above it are rejected."""

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import grpc
import numpy as np
import pytest
from litestar import Litestar
from litestar.testing import TestClient

from app.core.engine.scheduling.admission import QueueLimits
from tests.support.data.chariot import image_input
from tests.support.data.images import encode_base64, encode_image, rectangle
from tests.support.protocol_cases import PROTOCOL_CASES
from tests.support.protocols import LISTENERS, PROTOCOLS
from tests.support.servers.apps import app_of_protocol
from tests.support.servers.grpc_server import (
    GrpcTestClient,
    build_engine,
    message,
    number_request,
    raises_status,
    run_grpc_server,
)
from tests.support.servers.limited_engines import MAX_BYTES, engine_with_low_limits

Client = TestClient[Litestar]


def make_image(width: int = 40, height: int = 24) -> str:
    return encode_base64(encode_image(rectangle(width, height)))


SMALL, LONG, LARGE = make_image(), encode_base64(encode_image(np.zeros((2, 101, 3), np.uint8))), make_image(60, 51)


@pytest.fixture(scope="module")
def clients() -> Iterator[dict[str, Client]]:
    engine = engine_with_low_limits()
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(TestClient(app_of_protocol(engine, name, MAX_BYTES))) for name in PROTOCOL_CASES
        }


def test_every_protocol_has_cases() -> None:
    assert set(PROTOCOL_CASES) == {protocol.name for protocol in (*PROTOCOLS, *LISTENERS)}


def v2_image(*data: str, name: str = "image", **parameters: Any) -> dict[str, Any]:
    return image_input(list(data), name, **parameters)


def post(
    clients: dict[str, Client], protocol: str, model: str, images: list[Any], parameters: Any = None
) -> tuple[int, str]:
    """Send a request, and return the status and the error in the format of the protocol."""
    case = PROTOCOL_CASES[protocol]
    return post_content(clients[protocol], protocol, *case.encode(case.infer(model, images, parameters or {})))


def post_content(client: Client, protocol: str, path: str, content: bytes, **headers: str) -> tuple[int, str]:
    case = PROTOCOL_CASES[protocol]
    answer = client.post(path, content=content, headers={"Content-Type": case.media_type, **headers})
    return answer.status_code, "" if answer.status_code == 200 else case.read_error(answer.status_code, answer.json())


def check(answer: tuple[int, str], status: int = 200, message: str = "") -> None:
    """Check a status, and that the error contains `message`; without one it must be empty."""
    assert answer[0] == status, answer
    assert message in answer[1] if message else not answer[1]


@pytest.mark.parametrize("protocol", PROTOCOL_CASES)
@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([SMALL] * 5, "Expected at most 4 images or texts in one request (--max-inputs), got 5"),
        ([LARGE], "Expected an image of at most 3,000 pixels (--max-pixels), got 60x51 = 3,060"),
        ([SMALL, make_image(60, 50), make_image(60, 50)], "5,000 pixels in one request (--max-request-pixels)"),
        ([LONG], "Expected an image of at most 100 pixels in width and height (--max-image-side), got 101x2"),
    ],
    ids=["inputs", "pixels", "pixels together", "side"],
)
def test_image_limits_are_enforced(clients: dict[str, Client], protocol: str, images: list[str], message: str) -> None:
    model = PROTOCOL_CASES[protocol].image_model
    check(post(clients, protocol, model, [SMALL] * 4))
    check(post(clients, protocol, model, images), 413, message)
    check(post(clients, protocol, model, [make_image(60, 50)]))


@pytest.mark.parametrize("protocol", [name for name, case in PROTOCOL_CASES.items() if case.has_parameters])
@pytest.mark.parametrize(
    ("valid_parameters", "parameters", "message"),
    [
        ({"prompts": ["a"] * 3}, {"prompts": ["a"] * 4}, "3 prompts in a request (--max-prompts), got 4"),
        ({"prompts": ["a" * 50]}, {"prompts": ["a" * 51]}, "50 characters in one prompt (--max-text-length), got 51"),
        ({"max_new_tokens": 20}, {"max_new_tokens": 21}, "Expected at most 20 (--max-new-tokens), got 21"),
    ],
    ids=["prompts", "length of a prompt", "new tokens"],
)
def test_prompt_limits_are_enforced(
    clients: dict[str, Client], protocol: str, valid_parameters: Any, parameters: Any, message: str
) -> None:
    check(post(clients, protocol, "teller", [SMALL], valid_parameters))
    check(post(clients, protocol, "teller", [SMALL], parameters), 413, message)


@pytest.mark.parametrize("protocol", PROTOCOL_CASES)
@pytest.mark.parametrize(
    ("extra_member", "status", "message"),
    [
        (b'"x": ' + b"[" * 13 + b"]" * 13, 400, "Expected JSON nested 12 deep at most (--max-json-depth)"),
        (b'"x": {%s}' % b",".join(b'"%d": 1' % index for index in range(31)), 413, "Expected at most 30 members"),
        (b'"x": [%s]' % b",".join([b"1"] * 800), 413, "Expected at most 700 JSON values in one body (--max-values)"),
    ],
    ids=["depth", "members", "values"],
)
def test_json_limits_are_enforced(
    clients: dict[str, Client], protocol: str, extra_member: bytes, status: int, message: str
) -> None:
    case = PROTOCOL_CASES[protocol]
    path, content = case.encode(case.infer(case.image_model, [SMALL], {}))
    extended = b"{" + extra_member + b", " + content[1:]
    check(post_content(clients[protocol], protocol, path, extended), status, message)
    check(post_content(clients[protocol], protocol, path, content))


@pytest.mark.parametrize("protocol", PROTOCOL_CASES)
def test_body_size_limit_is_enforced_for_every_transfer(clients: dict[str, Client], protocol: str) -> None:
    client, case = clients[protocol], PROTOCOL_CASES[protocol]
    path, content = case.encode(case.infer(case.image_model, [SMALL], {}))
    full_body, compressed = content + b" " * (MAX_BYTES - len(content)), {"Content-Encoding": "gzip"}
    check(post_content(client, protocol, path, full_body))
    check(post_content(client, protocol, path, full_body + b" "), 413, "60,000 bytes")
    check(post_content(client, protocol, path, gzip.compress(full_body), **compressed))
    message = "Expected at most 60,000 bytes after decompression (--max-request-bytes), got more"
    check(post_content(client, protocol, path, gzip.compress(full_body + b" "), **compressed), 413, message)

    def chunks() -> Iterator[bytes]:
        yield from [full_body, b" ", b" " * 100]

    answer = client.post(path, content=chunks(), headers={"Content-Type": case.media_type})
    assert answer.status_code == 413
    check(post_content(client, protocol, path, content))


@pytest.mark.parametrize("protocol", [name for name, case in PROTOCOL_CASES.items() if case.tensors])
def test_json_element_limits_are_enforced(clients: dict[str, Client], protocol: str) -> None:
    case = PROTOCOL_CASES[protocol]
    assert case.tensors is not None
    for count, status, expected in (
        (600, 200, ""),
        (601, 413, "Expected at most 600 tensor elements in one request (--max-elements), got 601"),
        (701, 413, "Expected at most 700 JSON values in one body (--max-values)"),
    ):
        check(post_content(clients[protocol], protocol, *case.encode(case.tensors(count))), status, expected)


@pytest.mark.parametrize(
    ("datatype", "max_elements", "message"),
    [
        ("FP32", 600, "Expected at most 600 tensor elements in one request (--max-elements), got 601"),
        ("BYTES", 30, "inputs[0].data: Expected at most 30 BYTES elements in one tensor (--max-entries), got more"),
    ],
)
def test_binary_element_limits_are_enforced(
    clients: dict[str, Client], datatype: str, max_elements: int, message: str
) -> None:
    for count, status in ((max_elements, 200), (max_elements + 1, 413)):
        head = {"name": "x", "shape": [1, count], "datatype": datatype, "parameters": {"binary_data_size": 4 * count}}
        text = json.dumps({"inputs": [head]}).encode()
        headers = {"Inference-Header-Content-Length": str(len(text))}
        path = f"/v2/models/echo-{datatype.lower()}/infer"
        answer = clients["kserve-v2"].post(path, content=text + bytes(4 * count), headers=headers)
        assert answer.status_code == status, answer.text
    assert message in answer.json()["error"]


def test_text_limits_are_enforced(clients: dict[str, Client]) -> None:
    check(post(clients, "kserve-v2", "continuer", ["a" * 50]))
    error = "inputs[0].data[0]: Expected at most 50 characters in one text (--max-text-length), got 51"
    check(post(clients, "kserve-v2", "continuer", ["a" * 51]), 413, error)
    error = "inputs: Expected at most 3 texts in one request (--max-prompts), got 4"
    check(post(clients, "kserve-v2", "continuer", ["a"] * 4), 413, error)


def test_name_and_id_length_limits_are_enforced(clients: dict[str, Client]) -> None:
    client = clients["chariot-v2-kserve"]
    for path in ("/v2/models/m-detector/infer", "/v2/models/detector/infer"):
        for field, long in (("id", {"id": "i" * 41}), ("inputs[0].name", {"inputs": [v2_image(SMALL, name="n" * 41)]})):
            body = json.dumps({"inputs": [v2_image(SMALL)], **long}).encode()
            message = f"{field}: Expected at most 40 bytes in a name (--max-name-length), got 41"
            assert post_content(client, "kserve-v2", path, body) == (413, message)
        body = json.dumps({"inputs": [v2_image(SMALL, name="n" * 40)], "id": "i" * 40}).encode()
        assert post_content(client, "kserve-v2", path, body) == (200, "")


@pytest.mark.parametrize("header", ["x-request-id", "chariot-inference-base-id"])
def test_header_id_over_the_length_limit_is_not_returned(client: Client, header: str) -> None:
    body = json.dumps({"inputs": [v2_image(SMALL)]}).encode()
    for length, is_returned in ((1024, True), (1025, False)):
        headers = {header: "i" * length}
        answer = client.post("/v2/models/m-detector/infer", content=body, headers=headers)
        assert answer.status_code == 200
        assert (answer.headers.get(header) == "i" * length) == is_returned
        assert len(answer.headers["x-request-id"]) <= 1024


@pytest.fixture(scope="module")
def peer() -> Iterator[GrpcTestClient]:
    with run_grpc_server(engine_with_low_limits()) as peer:
        yield peer


def error_details(peer: GrpcTestClient, request: Any = None, **fields: Any) -> str:
    code, details = peer.call_error("ModelInfer", request or message("ModelInferRequest", **fields))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    return details


def test_kserve_message_limits_are_enforced_over_grpc(peer: GrpcTestClient) -> None:
    # The two sizes of the shape count as elements too.
    peer.call("ModelInfer", number_request([0.5] * 598))
    error = error_details(peer, number_request([0.5] * 599))
    assert error == "Expected at most 600 tensor elements in one body (--max-elements), got 601"
    raw = {"name": "x", "datatype": "FP32", "shape": [1, 601]}
    error = error_details(peer, model_name="echo-fp32", inputs=[raw], raw_input_contents=[bytes(2404)])
    assert error == "inputs[0]: Expected at most 600 tensor elements in one request (--max-elements), got 601"
    texts = {"name": "x", "datatype": "BYTES", "shape": [31]}
    error = error_details(peer, model_name="detector", inputs=[texts], raw_input_contents=[bytes(4 * 31)])
    assert error == "raw_input_contents[0]: Expected at most 30 BYTES elements in one tensor (--max-entries), got more"
    assert error_details(peer, model_name="detector", raw_input_contents=[b""] * 31) == (
        "Expected at most 30 fields in one message (--max-entries), got more"
    )
    assert "at most 40 bytes in a name (--max-name-length), got 41" in error_details(
        peer, number_request([0.5], id="i" * 41)
    )
    peer.call("ModelInfer", number_request([0.5] * 598))


def test_compressed_message_is_limited_by_its_decompressed_size(peer: GrpcTestClient) -> None:
    bomb = message("ModelInferRequest", model_name="detector", raw_input_contents=[bytes(10_000_000)])
    with raises_status(grpc.StatusCode.RESOURCE_EXHAUSTED):
        peer.call("ModelInfer", bomb, compression=grpc.Compression.Gzip)
    assert peer.call("ServerLive").live


def test_streams_per_client_are_limited() -> None:
    with run_grpc_server(build_engine(("echo-fp32",), queue_limits=QueueLimits(max_each_client=2))) as peer:
        request = number_request([0.5])
        proceed = threading.Event()

        def requests() -> Iterator[Any]:
            yield request
            assert proceed.wait(60)

        first = peer.stream(requests())
        assert not next(first).error_message
        peer.call("ModelInfer", request)
        second = peer.stream(requests())
        # A stream takes one slot and its request another. The two streams leave no slot for the request.
        assert "2 requests or streams of your address in flight" in next(second).error_message
        proceed.set()
        assert list(first) == []
        assert list(second) == []
