"""Test graphs of the task TENSOR: of any tensors, and of images such as embeddings and depth maps."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cv2
import msgspec
import numpy as np
import PIL.Image
import pytest
from litestar.testing import TestClient
from numpy.typing import NDArray
from onnx import TensorProto, helper

from app.core.assembly.models import describe, load
from app.core.engine.models.servable import Servable
from app.core.settings.model import ModelError
from metadata.model import Origin
from tasks.inference.error import ErrorKind
from tasks.inference.tensor import Datatype, InputTensor, Tensor, TensorSpec
from tests.core.runtimes.onnxruntime import graphs
from tests.support.data.images import encode_base64, encode_image
from tests.support.data.requests import file_input, pixel_input, predict, text_input
from tests.support.rejection import rejects
from tests.support.servers.apps import app_with_sources

ELEMENT_NAMES = {Datatype.FP16: "FLOAT16", Datatype.FP32: "FLOAT", Datatype.FP64: "DOUBLE"}


def graph(folder: Path, node: str, element: int, shape: list[int | str], metadata: Any = None, **settings: Any) -> Any:
    """Write a graph of one node, from ``x`` to ``y``."""
    options: dict[str, Any] = {"name": "x", "datatype": element, "output_types": {"y": element}, "properties": metadata}
    nodes = [helper.make_node(node, ["x"], ["y"])]
    return graphs.source(graphs.write(folder / "model.onnx", nodes, {"y": shape}, shape=shape, **options), **settings)


def answered(servable: Servable, *inputs: InputTensor) -> dict[str, NDArray[Any]]:
    """Return the arrays of the answer by name."""
    (prediction,) = predict(servable, *inputs)
    return {tensor.name: tensor.data for tensor in prediction.stack([prediction])}


@pytest.mark.parametrize("datatype", [datatype for datatype in Datatype if datatype is not Datatype.BF16])
@pytest.mark.verifies("graphs with known answers", "tensors")
def test_every_datatype_passes_through_unchanged(tmp_path: Path, datatype: Datatype) -> None:
    element = {**ELEMENT_NAMES, Datatype.BYTES: "STRING"}.get(datatype, datatype.value)
    servable = load(graph(tmp_path, "Identity", TensorProto.DataType.Value(element), ["rows", 2]))
    (spec,) = servable.inputs
    assert (spec.name, spec.datatype, spec.shape) == ("x", datatype, (-1, 2))
    assert [(output.name, output.datatype, output.shape) for output in servable.outputs] == [("y", datatype, (-1, 2))]
    if datatype is Datatype.BYTES:
        texts = msgspec.structs.replace(text_input("Å", "", name="x"), shape=(1, 2))
        values = answered(servable, texts)["y"]
        assert values.tolist() == [["Å".encode(), b""]]
    else:
        data = np.array([[0, 1], [1, 0]], datatype.dtype)
        values = answered(servable, Tensor(name="x", datatype=datatype, data=data))["y"]
        assert values.dtype == datatype.dtype
        assert values.tolist() == data.tolist()


def test_scalar_input_is_accepted(tmp_path: Path) -> None:
    servable = load(graph(tmp_path, "Neg", TensorProto.FLOAT, []))
    scalar = Tensor(name="x", datatype=Datatype.FP32, data=np.array(2.5, np.float32))
    assert answered(servable, scalar)["y"].tolist() == -2.5


def test_explicit_byte_order_is_accepted(tmp_path: Path) -> None:
    servable = load(graph(tmp_path, "Neg", TensorProto.INT32, ["n"]))
    tensor = Tensor(name="x", datatype=Datatype.INT32, data=np.frombuffer(b"\x01\0\0\0", "<i4"))
    assert answered(servable, tensor)["y"].tolist() == [-1]


@pytest.mark.parametrize(
    ("names", "labels"), [("['red', 'green']", ("day", "night")), ("no list", ("day", "night")), ("no list", ())]
)
def test_declared_labels_override_readable_and_unreadable_metadata(tmp_path: Path, names: str, labels: Any) -> None:
    settings = {"task_type": "TENSOR", **({"labels": labels} if labels else {})}
    source = graph(tmp_path, "Identity", TensorProto.FLOAT, ["rows", 2], {"names": names}, **settings)
    found = describe(source)
    assert load(source).description.labels == found.labels == labels
    assert labels or "metadata 'names' is not a Python literal" in found.facts[-1].value


HEIGHT, WIDTH = 12, 16
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.5)
RANDOM = np.random.default_rng(7)
WEIGHTS = RANDOM.normal(size=(3, 4)).astype(np.float32)
IMAGES = [
    encode_image(cv2.GaussianBlur(RANDOM.integers(0, 256, (*size, 3), np.uint8), (9, 9), 3))
    for size in ((40, 60), (90, 30))
]
PILLOW = {"size": [HEIGHT, WIDTH], "mean": MEAN, "std": STD}
OPENCV = {"size": [HEIGHT, WIDTH], "scale": 1, "channel_order": "BGR", "interpolation": "area", "antialias": False}
Arrays = Mapping[str, NDArray[Any]]
GRAPH_INPUT = Tensor(name="images", datatype=Datatype.FP32, data=np.ones((1, 3, HEIGHT, WIDTH), np.float32))


def embedder(folder: Path, batch: int | str = "batch", **settings: object) -> Any:
    """Write a graph that returns an embedding [b, 4] and a half-precision depth map [b, 12, 16] of each image."""
    text = f"""
        (float[{batch}, 3, height, width] images)
        => (float[{batch}, 4] embedding, float16[{batch}, {HEIGHT}, {WIDTH}] depth) {{
            colours = ReduceMean<axes = [2, 3], keepdims = 0>(images)
            embedding = MatMul(colours, weights)
            greys = ReduceMean<axes = [1], keepdims = 0>(images)
            depth = Cast<to = 10>(greys)
        }}
    """
    file = graphs.parse(folder / "model.onnx", text, {"weights": WEIGHTS})
    return graphs.source(file, **{"task_type": "TENSOR", **settings})


def expected(image: bytes, preprocessing: object = PILLOW) -> Arrays:
    """Preprocess with Pillow or OpenCV, and compute the outputs with NumPy."""
    opened = PIL.Image.open(io.BytesIO(image))
    if preprocessing is PILLOW:
        resized = opened.resize((WIDTH, HEIGHT), PIL.Image.Resampling.BILINEAR)
        pixels = (np.asarray(resized, np.float32) / 255 - np.array(MEAN, np.float32)) / np.array(STD, np.float32)
    else:
        resized = cv2.resize(np.asarray(opened), (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA)
        pixels = resized[..., ::-1].astype(np.float32)
    return {"embedding": pixels.mean((0, 1)) @ WEIGHTS, "depth": pixels.mean(2).astype(np.float16)}


def assert_close(name: str, values: object, wanted: Arrays, shape: object) -> None:
    array = np.array(values, np.float64).reshape(wanted[name].shape)
    assert shape == list(wanted[name].shape)
    # The mean of a pixel's channels changes by 0.0066 if a byte is rounded in another way than by Pillow.
    assert np.allclose(array, wanted[name], rtol=2e-3, atol=8e-3 if name == "depth" else 2e-3)


@pytest.mark.parametrize(("batch", "preprocessing"), [("batch", PILLOW), (1, OPENCV), (4, PILLOW)])
@pytest.mark.verifies("graphs with known answers", "image-tensors")
def test_each_image_gets_its_tensors(tmp_path: Path, preprocessing: object, batch: int | str) -> None:
    found = predict(load(embedder(tmp_path, batch, preprocessing=preprocessing)), *map(file_input, IMAGES))
    for prediction, image in zip(found, IMAGES, strict=True):
        records = prediction.records()
        assert [(record.name, record.datatype) for record in records] == [("embedding", "FP32"), ("depth", "FP16")]
        for record in records:
            assert_close(record.name, record.data, expected(image, preprocessing), list(record.shape))


def test_v2_stacks_the_tensors_of_all_images(tmp_path: Path) -> None:
    binary = {"name": "depth", "parameters": {"binary_data": True}}
    data = list(map(encode_base64, IMAGES))
    with TestClient(app_with_sources([embedder(tmp_path, preprocessing=PILLOW)], load)) as client:
        metadata = client.get("/v2/models/model").json()
        tensor = {"name": "image", "shape": [2], "datatype": "BYTES", "data": data}
        bodies = ({"inputs": [tensor], "outputs": [output]} for output in ({"name": "embedding"}, binary))
        text, answer = (client.post("/v2/models/model/infer", json=body) for body in bodies)
    size = int(answer.headers["Inference-Header-Content-Length"])
    head, raw = json.loads(answer.content[:size]), answer.content[size:]
    assert [(spec["name"], spec["datatype"]) for spec in metadata["inputs"]] == [("image", "BYTES")]
    assert [spec["shape"] for spec in metadata["outputs"]] == [[-1, 4], [-1, HEIGHT, WIDTH]]
    wanted = {name: np.stack([expected(image)[name] for image in IMAGES]) for name in ("embedding", "depth")}
    (embedding,), (depth,) = text.json()["outputs"], head["outputs"]
    assert_close("embedding", embedding["data"], wanted, embedding["shape"])
    assert depth["datatype"] == "FP16"
    assert_close("depth", np.frombuffer(raw, np.float16), wanted, depth["shape"])


def test_other_protocols_return_the_tensors_of_each_image(tmp_path: Path) -> None:
    source = embedder(tmp_path, preprocessing=PILLOW, outputs=["embedding"])
    image = {"name": "photo", "shape": [1], "datatype": "BYTES", "data": [encode_base64(IMAGES[0])]}
    instances = [{"image": {"b64": encode_base64(image)}} for image in IMAGES]
    with TestClient(app_with_sources([source], load)) as client:
        chariot = client.post("/v2/models/m-model/infer", json={"inputs": [image]}).json()
        answer = client.post("/v1/models/model:predict", json={"instances": instances, "parameters": {"metadata": 1}})
        file = client.post("/v1/models/model:predict", content=IMAGES[1], headers={"Content-Type": "image/png"})
        binary = {"Content-Type": "application/octet-stream"}
        grps = client.post("/grps/v1/infer/predict?model=model", content=IMAGES[0], headers=binary).json()
        unsupported = client.post("/v1/models/model:explain", json={"instances": instances[:1]})
    with TestClient(app_with_sources([source], load, "tensorflow-serving")) as client:
        rows = client.post("/v1/models/model:predict", json={"instances": [row["image"] for row in instances]}).json()
    (((record,),),) = (output["data"] for output in chariot["outputs"])
    assert_close(record["name"], record["data"], expected(IMAGES[0]), record["shape"])
    body = answer.json()
    assert [body["predictions"][1]] == file.json()["predictions"]
    assert body["predictions"] == rows["predictions"]
    for row, image in zip(body["predictions"], IMAGES, strict=True):
        assert_close("embedding", row, expected(image), [4])
    assert len(body["parameters"]) == len(IMAGES)
    (tensor,) = grps["gtensors"]["tensors"]
    assert_close("embedding", tensor["flat_float32"], {"embedding": expected(IMAGES[0])["embedding"][None]}, [1, 4])
    assert unsupported.status_code == 501
    assert "TENSOR" in unsupported.json()["error"]


@pytest.mark.verifies("graphs with known answers", "embedding")
def test_embeddings_need_no_declaration_and_openai_takes_images(tmp_path: Path) -> None:
    processor = {"size": {"height": HEIGHT, "width": WIDTH}, "image_mean": MEAN, "image_std": STD}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    source = embedder(tmp_path, task_type=None, outputs=["embedding"])
    facts = {fact.topic: fact for fact in describe(source).facts}
    assert (facts["layout"].value, facts["layout"].origin) == ("embedding, outputs embedding [1, 4]", Origin.MODEL_FILE)
    assert "4 numbers for each" in facts["takes"].value
    body = {"input": [f"data:image/png;base64,{encode_base64(image)}" for image in IMAGES]}
    with TestClient(app_with_sources([source], load)) as client:
        rows = client.post("/v1/embeddings", json=body).json()["data"]
    for row, image in zip(rows, IMAGES, strict=True):
        assert_close("embedding", row["embedding"], expected(image), [4])


def test_without_preprocessing_the_model_takes_tensors(tmp_path: Path) -> None:
    servable = load(embedder(tmp_path, 1))
    assert [(spec.name, spec.datatype) for spec in servable.inputs] == [("images", Datatype.FP32)]
    (prediction,) = predict(servable, GRAPH_INPUT)
    assert np.allclose(prediction.records()[0].data, WEIGHTS.sum(0), atol=1e-5)


@pytest.mark.parametrize(
    ("tensor", "path"),
    [
        (GRAPH_INPUT, "inputs[0].shape"),
        (file_input(b"no image"), "inputs[0].data[0]"),
    ],
)
def test_input_that_is_no_image_is_rejected_with_its_field(tmp_path: Path, tensor: InputTensor, path: str) -> None:
    servable = load(embedder(tmp_path, preprocessing=PILLOW))
    with rejects(path=path):
        predict(servable, tensor)


def bright_pixels(folder: Path) -> Any:
    """Write a graph whose output lists the bright pixels of one image, so that its shape follows the image."""
    text = """
        (float[1, 3, 8, 8] images) => (int64[4, count] places) <float limit = {0.5}> {
            bright = Greater(images, limit)
            places = NonZero(bright)
        }
    """
    file = graphs.parse(folder / "model.onnx", text)
    return graphs.source(file, task_type="TENSOR", preprocessing={"resize": "stretch"})


def test_outputs_without_batch_dimension_are_returned_whole(tmp_path: Path) -> None:
    servable = load(bright_pixels(tmp_path))
    assert servable.outputs == [TensorSpec(name="places", datatype=Datatype.INT64, shape=(-1, 4, -1))]
    images = np.zeros((2, 8, 8, 3), np.uint8)
    images[0, 2, 3] = 255
    found, nothing = predict(servable, pixel_input(images))
    (places,) = found.stack([found])
    assert places.data.tolist() == [[[0, 0, 0], [0, 1, 2], [2, 2, 2], [3, 3, 3]]]
    assert nothing.records()[0].shape == [4, 0]
    message = r"'places' has several shapes for these images, \[4, 0\], \[4, 3\]"
    with rejects(message, kind=ErrorKind.UNSUPPORTED):
        found.stack([found, nothing])


def test_preprocessing_needs_an_image_input(tmp_path: Path) -> None:
    node = helper.make_node("Identity", ["images"], ["output"])
    file = graphs.write(tmp_path / "model.onnx", [node], {"output": [1, 5]}, shape=(1, 5))
    with pytest.raises(ModelError, match=r"should be images \[batch, 3, .* but is images FP32 \[1, 5\]"):
        load(graphs.source(file, task_type="TENSOR", preprocessing={"resize": "stretch"}))


def test_description_names_the_guesses(tmp_path: Path) -> None:
    description = load(embedder(tmp_path, preprocessing={"mean": MEAN}, labels=["a", "b"])).description
    facts = {fact.topic: (fact.value, fact.origin) for fact in description.facts}
    assert facts["takes"] == ("images, because preprocessing is declared", Origin.DECLARED)
    assert facts["mean"][1] is Origin.DECLARED
    assert facts["resize"] == ("stretch", Origin.GUESSED)
    assert description.takes == "image"
    assert description.labels == ("a", "b")
