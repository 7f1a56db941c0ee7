"""Test the Open Inference Protocol over REST where its golden cases say nothing: sizes of the JSON, and any tensor."""

import json
import struct
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.data.chariot import IMAGE, Client
from tests.support.data.golden import HEADER_LENGTH

BLOCK = struct.pack("<2f", 1, 2)


@pytest.mark.parametrize("model", ["classifier", "detector", "half_plus_two", "teller"])
def test_metadata_matches_real_inputs_and_outputs(client: Client, model: str) -> None:
    metadata = client.get(f"/v2/models/{model}").json()
    (input_spec,) = metadata["inputs"]
    data, shape = ([IMAGE], [1]) if input_spec["datatype"] == "BYTES" else ([1.0], [1])
    tensor = {"name": input_spec["name"], "datatype": input_spec["datatype"], "shape": shape, "data": data}
    requested_outputs = [{"name": output["name"]} for output in metadata["outputs"]]
    body = {"inputs": [tensor], "outputs": requested_outputs}
    answer = client.post(f"/v2/models/{model}/infer", json=body).json()
    assert [output["name"] for output in answer["outputs"]] == [output["name"] for output in metadata["outputs"]]
    for actual, declared in zip(answer["outputs"], metadata["outputs"], strict=True):
        assert actual["datatype"] == declared["datatype"]
        assert len(actual["shape"]) == len(declared["shape"])
        assert all(
            size in (-1, actual_size) for size, actual_size in zip(declared["shape"], actual["shape"], strict=True)
        )


def binary(size: int = 8, datatype: str = "FP32", shape: Sequence[int] = (2,)) -> bytes:
    """Return the JSON of a request with one tensor, whose data follows."""
    tensor = {"name": "x", "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": size}}
    return json.dumps({"inputs": [tensor]}).encode()


@pytest.mark.parametrize(
    "length", [b"", b"-1", b"1e3", b"12.0", b"+5", b"0x10", b"\xd9\xa1", b"\xb2", b"9" * 20, b"9" * 5000, 1, -1, 9]
)
def test_invalid_header_length_is_rejected(client: Client, length: bytes | int) -> None:
    """Send a length as it is, or one that differs from that of the JSON by a number."""
    head = binary()
    header = b"%d" % (len(head) + length) if isinstance(length, int) else length
    path, headers = "/v2/models/half_plus_two/infer", {HEADER_LENGTH.encode(): header}
    response = client.post(path, content=head + BLOCK, headers=headers)
    # Nine bytes more are beyond the body.
    expected = {1: "", -1: "", 9: "Expected at most"}.get(
        length if isinstance(length, int) else 0, HEADER_LENGTH.title()
    )
    assert response.status_code == 400
    assert expected in response.json()["error"]
    headers = {HEADER_LENGTH.encode(): b"%d" % len(head)}
    assert client.post(path, content=head + BLOCK, headers=headers).json()["outputs"][0]["data"] == [2.5, 3.0]


@given(
    block=st.binary(max_size=40),
    shape=st.lists(st.integers(min_value=-2, max_value=2**65) | st.integers(min_value=0, max_value=3), max_size=4),
    datatype=st.sampled_from(["FP32", "BYTES", "INT64", "BOOL", "FP16"]),
)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_binary_tensor_is_answered_or_rejected(
    client: Client, block: bytes, shape: list[int], datatype: str
) -> None:
    head = binary(len(block), datatype, shape)
    for model in (f"echo-{datatype.lower()}", "detector"):
        response = client.post(
            f"/v2/models/{model}/infer", content=head + block, headers={HEADER_LENGTH: str(len(head))}
        )
        assert response.status_code in (200, 400, 413), response.text
