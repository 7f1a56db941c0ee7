"""Test the shapes and names that Chariot's clients send to models of tensors."""

from typing import Any

import pytest

from tests.support.data.chariot import Client, infer, items


def tensor(datatype: str, shape: list[int], data: object, name: str = "x") -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def echoed(client: Client, model: str, *inputs: dict[str, Any]) -> list[tuple[list[int], list[Any]]]:
    return [(record["shape"], record["data"]) for record in items(infer(client, model, *inputs))]


@pytest.mark.parametrize("shape", [[2], [2, 1], [-1], [-1, 1], [2, -1]])
def test_one_dimensional_input_accepts_a_column_and_a_free_size(client: Client, shape: list[int]) -> None:
    numbers, words = tensor("INT64", shape, [1, 2], "numbers"), tensor("BYTES", shape, ["a", "b"], "words")
    assert echoed(client, "echo-pair", numbers, words) == [([2], [1, 2]), ([2], ["a", "b"])]


@pytest.mark.parametrize("datatype", ["FP32", "BYTES"])
def test_any_size_may_be_free(client: Client, datatype: str) -> None:
    data: list[Any] = list("abcdef") if datatype == "BYTES" else [1, 2, 3, 4, 5, 6]
    for shape in ([-1, 3], [2, -1]):
        assert echoed(client, f"echo-{datatype.lower()}", tensor(datatype, shape, data)) == [([2, 3], data)]


def test_texts_may_be_nested_like_numbers(client: Client) -> None:
    assert echoed(client, "echo-bytes", tensor("BYTES", [2, -1], [["a", "b"], ["c", "d"]])) == [([2, 2], list("abcd"))]


@pytest.mark.parametrize("name", ["input-0", "", "anything"])
def test_only_input_of_a_model_may_have_any_name(client: Client, name: str) -> None:
    response = infer(client, "half_plus_two", tensor("FP32", [2], [1, 2], name))
    assert response.json()["outputs"][0]["name"] == name
    assert items(response)[0]["data"] == [2.5, 3.0]


@pytest.mark.parametrize(
    ("model", "datatype", "shape", "data"),
    [
        ("echo-fp32", "FP32", [3, 2], [[1, 2, 3], [4, 5, 6]]),
        ("echo-fp32", "FP32", [-1, 2], [[1, 2, 3], [4, 5, 6]]),
        ("echo-fp32", "FP32", [2, 1], [1, 2, 3]),
        ("echo-fp32", "FP32", [-1, -1], [1, 2, 3]),
        ("echo-bytes", "BYTES", [2, 1], ["a", "b", "c"]),
        ("echo-bytes", "BYTES", [-1, 2], ["a", "b", "c"]),
        ("echo-bytes", "BYTES", [-1, -1], ["a", "b", "c"]),
        ("echo-bytes", "BYTES", [-1, 0], ["a", "b", "c"]),
        ("echo-bytes", "BYTES", [-2, 1], ["a", "b", "c"]),
        ("echo-bytes", "BYTES", [3, 1], [["a", "b", "c"]]),
        ("echo-fixed", "INT16", [1, 3, 2], [1, 2, 3, 4, 5, 6]),
        ("echo-encoded", "BYTES", [1, 3], ["a", "b", "c"]),
    ],
)
def test_shape_that_contradicts_data_or_model_is_rejected(
    client: Client, model: str, datatype: str, shape: list[int], data: object
) -> None:
    name = "x_bytes" if model == "echo-encoded" else "x"
    response = infer(client, model, tensor(datatype, shape, data, name))
    assert response.status_code == 400
    assert response.json()["error"].startswith("inputs[0].shape: ")
