"""Test graphs that are served as plain tensor models."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from app.core.assembly.models import describe, load
from app.core.engine.models.servable import Servable
from app.core.settings.model import ModelSettings, ModelSource
from tasks.inference.tensor import Datatype, InputTensor, Tensor
from tasks.task import TaskType
from tests.support.data.requests import predict, text_input

ELEMENT_NAMES = {Datatype.FP16: "FLOAT16", Datatype.FP32: "FLOAT", Datatype.FP64: "DOUBLE", Datatype.BF16: "BFLOAT16"}


def graph(folder: Path, node: str, element: int, shape: list[int | str], metadata: Any = None) -> ModelSource:
    """Write a graph of one node, from ``x`` to ``y``."""
    graph_proto = helper.make_graph(
        [helper.make_node(node, ["x"], ["y"])],
        "one",
        [helper.make_tensor_value_info("x", element, shape)],
        [helper.make_tensor_value_info("y", element, shape)],
    )
    model = helper.make_model(graph_proto, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    helper.set_model_props(model, metadata or {})
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return ModelSource(name="one", version="1", folder=folder)


def answer(servable: Servable, *inputs: InputTensor) -> dict[str, NDArray[Any]]:
    """Return the arrays of the answer by name."""
    (prediction,) = predict(servable, *inputs)
    return {tensor.name: tensor.data for tensor in type(prediction).stack([prediction])}


@pytest.mark.parametrize("datatype", Datatype)
def test_every_datatype_passes_through_unchanged(tmp_path: Path, datatype: Datatype) -> None:
    element = {**ELEMENT_NAMES, Datatype.BYTES: "STRING"}.get(datatype, datatype.value)
    servable = load(graph(tmp_path, "Identity", TensorProto.DataType.Value(element), ["rows", 2]))
    (spec,) = servable.inputs
    assert (spec.name, spec.datatype, spec.shape) == ("x", datatype, (-1, 2))
    assert [(output.name, output.datatype, output.shape) for output in servable.outputs] == [("y", datatype, (-1, 2))]
    if datatype is Datatype.BYTES:
        texts = msgspec.structs.replace(text_input("Å", "", name="x"), shape=(1, 2))
        values = answer(servable, texts)["y"]
        assert values.tolist() == [["Å".encode(), b""]]
    else:
        data = np.array([[0, 1], [1, 0]], datatype.dtype)
        values = answer(servable, Tensor(name="x", datatype=datatype, data=data))["y"]
        assert values.dtype == datatype.dtype
        assert values.tolist() == data.tolist()


def test_scalar_input_is_accepted(tmp_path: Path) -> None:
    servable = load(graph(tmp_path, "Neg", TensorProto.FLOAT, []))
    scalar = Tensor(name="x", datatype=Datatype.FP32, data=np.array(2.5, np.float32))
    assert answer(servable, scalar)["y"].tolist() == -2.5


def test_explicit_byte_order_is_accepted(tmp_path: Path) -> None:
    servable = load(graph(tmp_path, "Neg", TensorProto.INT32, ["n"]))
    tensor = Tensor(name="x", datatype=Datatype.INT32, data=np.frombuffer(b"\x01\0\0\0", "<i4"))
    assert answer(servable, tensor)["y"].tolist() == [-1]


@pytest.mark.parametrize("metadata", [{"names": "['red', 'green']"}, {"names": "no list"}])
def test_declared_labels_override_metadata(tmp_path: Path, metadata: dict[str, str]) -> None:
    source = graph(tmp_path, "Identity", TensorProto.FLOAT, ["rows", 2], metadata=metadata)
    settings = ModelSettings(task_type=TaskType.TENSOR, labels=("day", "night"))
    assert load(msgspec.structs.replace(source, settings=settings)).description.labels == ("day", "night")


def test_unreadable_metadata_leaves_a_declared_tensor_model_without_labels(tmp_path: Path) -> None:
    source = graph(tmp_path, "Identity", TensorProto.FLOAT, ["rows", 2], metadata={"names": "no list"})
    found = describe(msgspec.structs.replace(source, settings=ModelSettings(task_type=TaskType.TENSOR)))
    assert found.labels == ()
    assert "metadata 'names' is not a Python literal" in found.facts[-1].value
