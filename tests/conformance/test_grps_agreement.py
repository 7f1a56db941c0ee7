"""GRPS says what V2 says, over REST and over gRPC, for the same tensors and images."""

import base64
import json
import math
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.json_format import MessageToDict, ParseDict
from hypothesis import given
from hypothesis import strategies as st
from litestar import Litestar
from litestar.testing import TestClient

from app.proto import message_class
from app.protocols.grps.tensors import wire_type
from tasks.exchange.tensor import Datatype
from tests.conformance.test_agreement import AGREEING, over_json
from tests.support.grpc_server import Peer, over, serving_grpc
from tests.support.pictures import encoded, rectangle
from tests.support.served import EVERYTHING, build, load_any, source

MESSAGE: Any = message_class("grps.protos.v1.GrpsMessage")
PREDICT = "/grps/v1/infer/predict"
IMAGE_MODELS = ("classifier", "detector", "oriented", "segmenter", "teller")
TEXT_MODELS = ("sorter", "tagger", "continuer")

# GRPS gives every output as it is, answers one image here, and has no integers beyond INT64.
COMPARED = [
    case
    for case in AGREEING
    if "outputs" not in json.loads((case / "request.json").read_text())
    and case.name not in ("integers-64-bit", "metadata-of-several-images")
]


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient[Litestar]]:
    with TestClient(build(EVERYTHING)) as client:
        yield client


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    with serving_grpc(over([source(name) for name in EVERYTHING], load_any)) as peer:
        yield peer


def answered(client: TestClient[Litestar], peer: Peer, body: dict[str, Any]) -> dict[str, Any]:
    """The answer to a message, which is the same over REST and gRPC."""
    response = client.post(PREDICT, json=body)
    assert response.status_code == 200, response.text
    data = ParseDict(body, MESSAGE()).SerializeToString()
    told = MESSAGE.FromString(peer.bytes("/grps.protos.v1.GrpsService/Predict", data))
    assert ParseDict(response.json(), MESSAGE()) == told
    return MessageToDict(told, preserving_proto_field_name=True)


def generic(tensor: dict[str, Any]) -> dict[str, Any]:
    """A tensor of V2 as one of GRPS."""
    wire = wire_type(Datatype(tensor["datatype"]))
    flat = np.array(tensor["data"], object).ravel().tolist()
    return {"name": tensor["name"], "dtype": wire.name, "shape": tensor["shape"], wire.field: flat}


def tensors_of(answer: dict[str, Any]) -> dict[str, tuple[list[int], list[Any]]]:
    """Shapes and elements of an answer's tensors."""
    found: dict[str, tuple[list[int], list[Any]]] = {}
    for each in answer["gtensors"]["tensors"]:
        field = next((name for name in each if name.startswith("flat_")), "flat_int8")
        values = each.get(field, [])
        found[each["name"]] = each.get("shape", []), list(map(int, values)) if field == "flat_int64" else values
    return found


@pytest.mark.parametrize("case", COMPARED, ids=lambda case: case.name)
def test_golden_requests_of_v2(client: TestClient[Litestar], peer: Peer, case: Path) -> None:
    told = tomllib.loads((case / "case.toml").read_text())
    request = json.loads((case / "request.json").read_text())
    (model,) = told["models"]
    expected = over_json(client, told["path"], request)
    body = {"model": model, "gtensors": {"tensors": [generic(each) for each in request["inputs"]]}}
    if "predictions" in expected:
        (image,) = request["inputs"][0]["data"]
        by_name = {"model": model, "gmap": {"s_b": {"a": image}}}
        (records,) = expected["predictions"][2]
        assert json.loads(answered(client, peer, by_name)["gmap"]["s_s"]["a"]) == json.loads(records)
        expected = over_json(client, told["path"], {**request, "parameters": {"output_format": "tensors"}})
    found = tensors_of(answered(client, peer, body))
    assert set(found) == set(expected)
    for name, (_, shape, data) in expected.items():
        assert found[name][0] == shape
        assert found[name][1] == (pytest.approx(data, abs=1e-6) if data and isinstance(data[0], float) else data)


@pytest.mark.parametrize("model", IMAGE_MODELS)
def test_an_image_in_every_way_in(client: TestClient[Litestar], peer: Peer, model: str) -> None:
    pixels = rectangle(40, 30, (4, 5, 20, 21), (0, 255, 0))
    image = base64.b64encode(encoded(pixels)).decode()
    asked = {"inputs": [{"name": "image", "shape": [1], "datatype": "BYTES", "data": [image]}]}
    (records,) = over_json(client, f"/v2/models/{model}/infer", asked)["predictions"][2]
    assert json.loads(answered(client, peer, {"model": model, "str_data": image})["str_data"]) == json.loads(records)
    body = client.post(
        f"{PREDICT}?model={model}-1", content=encoded(pixels), headers={"content-type": "application/octet-stream"}
    )
    assert json.loads(body.json()["str_data"]) == json.loads(records)
    data = MESSAGE(model=model, bin_data=encoded(pixels)).SerializeToString()
    told = MESSAGE.FromString(peer.bytes("/grps.protos.v1.GrpsService/Predict", data))
    assert json.loads(told.str_data) == json.loads(records)
    for tensor in (
        {"dtype": "DT_UINT8", "shape": [30, 40, 3], "flat_uint8": pixels.ravel().tolist()},
        {"dtype": "DT_STRING", "shape": [1], "flat_string": [image]},
    ):
        found = tensors_of(answered(client, peer, {"model": model, "gtensors": {"tensors": [tensor]}}))
        expected = over_json(client, f"/v2/models/{model}/infer", {**asked, "parameters": {"output_format": "tensors"}})
        assert {name: each[0] for name, each in found.items()} == {name: each[1] for name, each in expected.items()}


@pytest.mark.parametrize("model", TEXT_MODELS)
def test_a_text_in_every_way_in(client: TestClient[Litestar], peer: Peer, model: str) -> None:
    text = "red, then green, then réd"
    asked = {"inputs": [{"name": "args", "shape": [1], "datatype": "BYTES", "data": [text]}]}
    (records,) = over_json(client, f"/v2/models/{model}/infer", asked)["predictions"][2]
    expected = json.loads(records)
    assert json.loads(answered(client, peer, {"model": model, "str_data": text})["str_data"]) == expected
    body = client.post(
        f"{PREDICT}?model={model}", content=text.encode(), headers={"content-type": "application/octet-stream"}
    )
    assert json.loads(body.json()["str_data"]) == expected
    by_name = {"s_s": {"a": text, "b": text}, "s_b": {"c": base64.b64encode(text.encode()).decode()}}
    told = answered(client, peer, {"model": model, "gmap": by_name})["gmap"]["s_s"]
    assert {name: json.loads(each) for name, each in told.items()} == dict.fromkeys("abc", expected)
    tensor = {"dtype": "DT_STRING", "shape": [2], "flat_string": [text, text]}
    found = tensors_of(answered(client, peer, {"model": model, "gtensors": {"tensors": [tensor]}}))
    twice = {"inputs": [{**asked["inputs"][0], "shape": [2], "data": [text, text]}]}
    tensors = over_json(client, f"/v2/models/{model}/infer", {**twice, "parameters": {"output_format": "tensors"}})
    assert found == {
        name: (shape, pytest.approx(data) if name == "scores" else data) for name, (_, shape, data) in tensors.items()
    }


@given(
    shape=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    datatype=st.sampled_from([Datatype.INT8, Datatype.INT64, Datatype.FP32, Datatype.FP64]),
    data=st.data(),
)
def test_any_numbers(
    client: TestClient[Litestar], peer: Peer, shape: tuple[int, int], datatype: Datatype, data: st.DataObject
) -> None:
    if datatype.kind == "f":
        number: st.SearchStrategy[Any] = st.floats(-(2.0**99), 2.0**99, width=32)
    else:
        limits = np.iinfo(datatype.dtype)
        number = st.integers(int(limits.min), int(limits.max))
    values = data.draw(st.lists(number, min_size=math.prod(shape), max_size=math.prod(shape)))
    tensor: dict[str, Any] = {"name": "x", "datatype": datatype.value, "shape": list(shape), "data": values}
    model = f"echo-{datatype.lower()}"
    found = tensors_of(answered(client, peer, {"model": model, "gtensors": {"tensors": [generic(tensor)]}}))
    expected = over_json(client, f"/v2/models/{model}/infer", {"inputs": [tensor]})
    assert found["x"] == (expected["x"][1], pytest.approx(expected["x"][2], rel=1e-6))
