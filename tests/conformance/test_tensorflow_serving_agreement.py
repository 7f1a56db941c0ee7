"""The same data through KServe V1, V2 and TensorFlow Serving give the same numbers."""

import json
from typing import Any, cast

import numpy as np
import pytest

from tests.support.data.chariot import Client
from tests.support.data.images import encode_base64, encode_image, rectangle

IMAGES = [
    encode_base64(encode_image(rectangle())),
    encode_base64(encode_image(rectangle(80, 60, box=(5, 6, 70, 20), colour=(30, 255, 10)))),
    encode_base64(encode_image(rectangle(colour=(0, 0, 0)))),
]


TEXTS = ["red, green and red", "nothing", "blue", "", "Grün is green"]


def over_v2(client: Client, model: str, *inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the output tensors by name, as nested lists."""
    body = {"inputs": inputs, "parameters": {"output_format": "tensors"}}
    response = client.post(f"/v2/models/{model}/infer", json=body)
    assert response.status_code == 200, response.text
    outputs = response.json()["outputs"]
    return {output["name"]: np.array(output["data"], object).reshape(output["shape"]).tolist() for output in outputs}


def over_tensorflow(client: Client, model: str, body: object) -> Any:
    response = client.post(f"/v1/models/{model}:predict", content=json.dumps(body))
    assert response.status_code == 200, response.text
    (outputs,) = response.json().values()
    return outputs


def same(one: Any, other: Any) -> bool:
    """Compare floats as FP32, because V2 writes them with the digits of 64 bits."""
    if isinstance(one, float):
        return isinstance(other, float) and np.float32(one) == np.float32(other)
    if not isinstance(one, list):
        return type(one) is type(other) and one == other
    left, right = cast("list[Any]", one), cast("list[Any]", other)
    return len(left) == len(right) and all(map(same, left, right))


@pytest.mark.parametrize("model", ["classifier", "detector", "oriented", "segmenter", "teller"])
def test_outputs_for_images_equal_v2_tensors(kserve: Client, tensorflow: Client, model: str) -> None:
    count = 2
    image = {"name": "image", "datatype": "BYTES", "shape": [count], "data": IMAGES[:count]}
    expected = over_v2(kserve, model, image)
    images = [{"b64": data} for data in IMAGES[:count]]
    assert_same_columns(over_tensorflow(tensorflow, model, {"inputs": images}), expected)
    assert_same_rows(over_tensorflow(tensorflow, model, {"instances": images}), expected)


@pytest.mark.parametrize("model", ["sorter", "tagger", "continuer"])
def test_outputs_for_texts_equal_v2_tensors(kserve: Client, tensorflow: Client, model: str) -> None:
    args = {"name": "args", "datatype": "BYTES", "shape": [len(TEXTS)], "data": TEXTS}
    expected = over_v2(kserve, model, args)
    for inputs in (TEXTS, {"args": TEXTS}, {"text": TEXTS}):
        assert_same_columns(over_tensorflow(tensorflow, model, {"inputs": inputs}), expected)
    for instances in (TEXTS, [{"text": text} for text in TEXTS]):
        assert_same_rows(over_tensorflow(tensorflow, model, {"instances": instances}), expected)


def assert_same_columns(columns: Any, expected: dict[str, Any]) -> None:
    """Compare columns with output tensors; a single output has no name."""
    columns = columns if len(expected) > 1 else {next(iter(expected)): columns}
    assert list(columns) == list(expected)
    assert all(same(columns[name], data) for name, data in expected.items())


def assert_same_rows(rows: Any, expected: dict[str, Any]) -> None:
    """Compare rows with output tensors; a single output has no name."""
    names = list(expected)
    columns = {name: [row[name] for row in rows] if len(names) > 1 else rows for name in names}
    assert all(same(columns[name], data) for name, data in expected.items())


@pytest.mark.parametrize(
    ("model", "name", "values"),
    [("classifier", "image", [{"b64": data} for data in IMAGES]), ("sorter", "text", TEXTS), ("sorter", "args", TEXTS)],
)
def test_classify_returns_v1_scores(
    kserve: Client, tensorflow: Client, model: str, name: str, values: list[object]
) -> None:
    expected = kserve.post(f"/v1/models/{model}:predict", json={"instances": values}).json()["predictions"]
    body = {"examples": [{name: value} for value in values]}
    results = tensorflow.post(f"/v1/models/{model}:classify", json=body).json()["results"]
    for pairs, records in zip(results, expected, strict=True):
        assert pairs == [[record["label"], pytest.approx(record["score"], abs=1e-6)] for record in records]
