"""The same data through KServe V1, V2 and TensorFlow Serving give the same numbers."""

import base64
import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from litestar import Litestar
from litestar.testing import TestClient

from tests.support.pictures import base64_text, encoded, rectangle
from tests.support.served import EVERYTHING, build

Client = TestClient[Litestar]

PICTURES = [
    base64_text(encoded(rectangle())),
    base64_text(encoded(rectangle(80, 60, box=(5, 6, 70, 20), colour=(30, 255, 10)))),
    base64_text(encoded(rectangle(colour=(0, 0, 0)))),
]


@pytest.fixture(scope="module")
def clients() -> Iterator[tuple[Client, Client]]:
    """KServe's, and TensorFlow Serving's."""
    with ExitStack() as stack:
        kserve, tensorflow = (build(EVERYTHING, each) for each in ("chariot-v2-kserve", "tensorflow-serving"))
        yield stack.enter_context(TestClient(kserve)), stack.enter_context(TestClient(tensorflow))


def over_v2(client: Client, model: str, *inputs: dict[str, Any]) -> dict[str, Any]:
    """The output tensors by name, nested."""
    body = {"inputs": inputs, "parameters": {"output_format": "tensors"}}
    answer = client.post(f"/v2/models/{model}/infer", json=body)
    assert answer.status_code == 200, answer.text
    outputs = answer.json()["outputs"]
    return {each["name"]: np.array(each["data"], object).reshape(each["shape"]).tolist() for each in outputs}


def over_tensorflow(client: Client, model: str, body: object) -> Any:
    answer = client.post(f"/v1/models/{model}:predict", content=json.dumps(body))
    assert answer.status_code == 200, answer.text
    (found,) = answer.json().values()
    return found


def same(one: Any, other: Any) -> bool:
    """Equal as 32-bit floats: V2 writes them with the digits of 64 bits."""
    if isinstance(one, float):
        return isinstance(other, float) and np.float32(one) == np.float32(other)
    if not isinstance(one, list):
        return type(one) is type(other) and one == other
    left, right = cast("list[Any]", one), cast("list[Any]", other)
    return len(left) == len(right) and all(map(same, left, right))


@pytest.mark.parametrize("model", ["classifier", "detector", "oriented", "segmenter", "teller"])
@pytest.mark.parametrize("count", [1, 2])
def test_every_task_gives_v2s_tensors(clients: tuple[Client, Client], model: str, count: int) -> None:
    kserve, tensorflow = clients
    pictures = PICTURES[:count]
    expected = over_v2(kserve, model, {"name": "image", "datatype": "BYTES", "shape": [count], "data": pictures})
    assert expected
    images = [{"b64": picture} for picture in pictures]
    columns = over_tensorflow(tensorflow, model, {"inputs": images})
    rows = over_tensorflow(tensorflow, model, {"instances": images})
    assert list(columns) == list(expected)
    for name, data in expected.items():
        assert same(columns[name], data), name
        assert same([row[name] for row in rows], data), name


def test_scores_and_boxes_are_those_of_v1(clients: tuple[Client, Client]) -> None:
    kserve, tensorflow = clients
    images = [{"b64": picture} for picture in PICTURES]
    answer = kserve.post("/v1/models/detector:predict", json={"instances": images})
    assert answer.status_code == 200, answer.text
    rows = over_tensorflow(tensorflow, "detector", {"instances": images})
    assert [row["num_detections"] for row in rows] == [1, 1, 0]
    for row, found in zip(rows, answer.json()["predictions"], strict=True):
        assert len(found) == row["num_detections"]
        for place, each in enumerate(found):
            assert each["label"] == row["labels"][place]
            assert each["score"] == pytest.approx(row["scores"][place], abs=1e-6)
            assert [each[side] for side in ("xmin", "ymin", "xmax", "ymax")] == row["boxes"][place]


def test_classify_gives_the_scores_of_predict(clients: tuple[Client, Client]) -> None:
    _, tensorflow = clients
    images = [{"b64": picture} for picture in PICTURES]
    rows = over_tensorflow(tensorflow, "classifier", {"instances": images})
    answer = tensorflow.post("/v1/models/classifier:classify", json={"examples": [{"image": each} for each in images]})
    pairs = [[list(pair) for pair in zip(row["labels"], row["scores"], strict=True)] for row in rows]
    assert answer.json() == {"results": pairs}


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=5))
def test_floats_are_v2s(clients: tuple[Client, Client], numbers: list[float]) -> None:
    kserve, tensorflow = clients
    given_v2 = {"name": "x", "datatype": "FP32", "shape": [len(numbers)], "data": numbers}
    expected = over_v2(kserve, "half_plus_two", given_v2)["y"]
    assert same(over_tensorflow(tensorflow, "half_plus_two", {"instances": numbers}), expected)
    assert same(over_tensorflow(tensorflow, "half_plus_two", {"inputs": {"x": numbers}}), expected)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), min_size=1, max_size=3))
def test_strings_are_v2s(clients: tuple[Client, Client], texts: list[str]) -> None:
    kserve, tensorflow = clients
    given_v2 = {"name": "text", "datatype": "BYTES", "shape": [len(texts)], "data": texts}
    expected = over_v2(kserve, "greeter", given_v2)["greeting"]
    assert over_tensorflow(tensorflow, "greeter", {"instances": texts}) == expected
    as_bytes = [{"b64": base64.b64encode(text.encode()).decode()} for text in texts]
    assert over_tensorflow(tensorflow, "greeter", {"inputs": as_bytes}) == expected
