"""Test tensors of every datatype over REST, with models that return their inputs."""

from typing import Any

import pytest

from tests.core.protocols.kserve_v2.test_grpc_codec import VALUES
from tests.support.data.chariot import Client


def tensor(datatype: str, shape: list[int], data: object, name: str = "x") -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def post(client: Client, model: str, *inputs: dict[str, Any], **body: Any) -> tuple[int, dict[str, Any]]:
    response = client.post(f"/v2/models/{model}/infer", json={"inputs": inputs, **body})
    return response.status_code, response.json()


def echo_data(client: Client, datatype: str, shape: list[int], data: object) -> Any:
    """Return the flat data that the model returns."""
    status, answer = post(client, f"echo-{datatype.lower()}", tensor(datatype, shape, data))
    assert status == 200, answer
    (output,) = answer["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("x", datatype, shape)
    return output["data"]


def error_message(client: Client, model: str, *inputs: dict[str, Any], **body: Any) -> str:
    """Check that a request is rejected, and return the error message."""
    status, answer = post(client, model, *inputs, **body)
    assert status == 400, answer
    assert list(answer) == ["error"]
    return answer["error"]


@pytest.mark.parametrize("datatype", VALUES)
def test_extreme_values_round_trip(client: Client, datatype: str) -> None:
    data = VALUES[datatype]
    result = echo_data(client, datatype, [1, 3], data)
    assert result == data
    assert [type(value) for value in result] == [type(value) for value in data]
    assert echo_data(client, datatype, [3, 1], [[value] for value in data]) == data, "nested rows"
    assert echo_data(client, datatype, [0, 2], []) == []


@pytest.mark.parametrize("datatype", ["INT32", "BOOL", "BYTES"])
def test_shape_that_contradicts_nested_rows_is_rejected(client: Client, datatype: str) -> None:
    rows = [["a", "b", "c"], ["d", "e", "f"]] if datatype == "BYTES" else [[1, 0, 1], [0, 1, 0]]
    model = f"echo-{datatype.lower()}"
    message = error_message(client, model, tensor(datatype, [3, 2], rows))
    assert message == "inputs[0].shape: Expected the shape of the rows in data, [2, 3], got [3, 2]"
    assert "inputs[0].shape" in error_message(client, model, tensor(datatype, [1, 6], rows))
    assert "inputs[0].shape" in error_message(client, model, tensor(datatype, [6, 1], rows))
    assert "inputs[0].data[1]" in error_message(client, model, tensor(datatype, [5, 1], [rows[0], rows[1][:2]]))
    assert len(echo_data(client, datatype, [2, 3], rows)) == 6


def test_requests_of_mlserver_codecs_are_accepted(client: Client) -> None:
    # MLServer's NumpyCodec and StringCodec give one-dimensional values a second dimension, and count the inputs.
    status, answer = post(client, "half_plus_two", tensor("FP32", [2, 1], [1, 2], "input-1"))
    assert (status, answer["outputs"][0]["shape"], answer["outputs"][0]["data"]) == (200, [2], [2.5, 3.0])
    numbers, words = tensor("INT64", [2, 1], [1, 2], "numbers"), tensor("BYTES", [2, 1], ["a", "b"], "words")
    status, answer = post(client, "echo-pair", numbers, words)
    assert (status, [output["shape"] for output in answer["outputs"]]) == (200, [[2], [2]])


def test_names_matter_for_models_with_several_inputs(client: Client) -> None:
    words = tensor("BYTES", [1], ["a"], "words")
    assert "inputs[0].name" in error_message(client, "echo-pair", tensor("INT64", [1], [1], "input-1"), words)
    two = [tensor("FP32", [1], [1], name) for name in ("input-1", "input-2")]
    assert "inputs[0].name" in error_message(client, "half_plus_two", *two)


@pytest.mark.parametrize("shape", [[0, 2**63 - 1], [0, 2**63], [2**70, 0]], ids=str)
@pytest.mark.parametrize("datatype", ["INT32", "BYTES"])
def test_empty_tensor_with_overflowing_shape_is_answered_or_rejected(
    client: Client, datatype: str, shape: list[int]
) -> None:
    status, answer = post(client, f"echo-{datatype.lower()}", tensor(datatype, shape, []))
    # A shape that NumPy can represent is a valid empty tensor.
    assert (status, answer.get("error", "inputs[0].shape")[:15]) in ((200, "inputs[0].shape"), (400, "inputs[0].shape"))


def test_bf16_and_fp16_in_json_are_rejected(client: Client) -> None:
    message = error_message(client, "echo-bf16", tensor("BF16", [1, 1], [1]))
    assert "inputs[0].datatype: BF16 has no form in JSON" in message
    assert "binary" in error_message(client, "echo-fp16", tensor("FP16", [1, 1], [1]))


def test_inputs_and_outputs_are_matched_by_name(client: Client) -> None:
    numbers = tensor("INT64", [2], [1, 2], "numbers")
    words = tensor("BYTES", [1], ["a"], "words")
    status, answer = post(client, "echo-pair", words, numbers)
    assert status == 200
    assert [output["name"] for output in answer["outputs"]] == ["numbers", "words"]
    status, answer = post(client, "echo-pair", words, numbers, outputs=[{"name": "words"}])
    assert [(output["name"], output["data"]) for output in answer["outputs"]] == [("words", ["a"])]


def test_extra_fields_and_parameters_are_ignored(client: Client) -> None:
    input_tensor = {**tensor("FP32", [1], [1]), "parameters": {"content_type": "np", "n": 1.5}, "extra": 1}
    status, _ = post(
        client, "half_plus_two", input_tensor, model_name="half_plus_two", parameters={"priority": 1, "x": True}
    )
    assert status == 200
