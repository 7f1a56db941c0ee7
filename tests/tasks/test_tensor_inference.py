"""The task TENSOR: inputs of the model, rejected requests, and answers."""

from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from app.core.wire.bytes_elements import BinaryElement, StringElement
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.limits import Limits
from tasks.inference.tensor import BytesTensor, Datatype, InputTensor, Tensor, TensorSpec
from tasks.tensor_inference import TensorInference, Tensors
from tests.support.data.requests import file_input, request, text_input

SPECS = [
    TensorSpec(name="x", datatype=Datatype.FP32, shape=(-1, 2)),
    TensorSpec(name="words", datatype=Datatype.BYTES, shape=(-1,)),
]

TASK = TensorInference(SPECS, SPECS)

X = Tensor(name="x", datatype=Datatype.FP32, data=np.zeros((3, 2), np.float32))
WORDS = BytesTensor(name="words", shape=(2,), elements=[StringElement("aGk="), BinaryElement("Å".encode())])


def decoded(*inputs: InputTensor, **parameters: object) -> dict[str, NDArray[Any]]:
    """Return the inputs of the model."""
    (group,) = TASK.decode(request(*inputs, **parameters), {}, Limits())
    (item,) = group.items
    return dict(item.tensors)


def rejection(*inputs: InputTensor) -> str:
    with pytest.raises(InferenceError) as caught:
        decoded(*inputs)
    assert caught.value.kind is ErrorKind.INVALID_REQUEST
    return str(caught.value)


def test_model_inputs_are_keyed_by_name() -> None:
    tensors = decoded(WORDS, X)
    assert tensors["x"] is X.data, "numbers are not copied"
    assert tensors["words"].tolist() == ["aGk=", "Å"], "texts are not taken for base64"
    assert tensors["words"].dtype == object


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [(None, ["/w==", b"\xff"]), ("str", ["/w==", b"\xff"]), ("base64", [b"\xff", b"\xff"])],
)
def test_binary_model_receives_bytes(content_type: str | None, expected: list[object]) -> None:
    elements, parameters = [StringElement("/w=="), BinaryElement(b"\xff")], {"content_type": content_type}
    words = BytesTensor(name="words", shape=(2,), elements=elements, parameters=parameters)
    (group,) = TensorInference(SPECS[1:], SPECS, binary=True).decode(request(words), {}, Limits())
    assert group.items[0].tensors["words"].tolist() == expected
    assert group.name == "words"


def test_text_model_decodes_base64_and_rejects_bytes_that_are_no_text() -> None:
    assert decoded(X, text_input("aGk=", name="words", content_type="base64"))["words"].tolist() == ["hi"]
    for wrong in (
        file_input(b"\xff", name="words", content_type="str"),
        text_input("/w==", name="words", content_type="base64"),
    ):
        assert rejection(X, wrong) == "inputs[1].data[0]: Expected text in UTF-8, got other bytes"


@pytest.mark.parametrize("shape", [(3,), (0,), (-1,), (2**64,)])
def test_number_of_elements_must_match_the_shape(shape: tuple[int, ...]) -> None:
    assert rejection(X, msgspec.structs.replace(WORDS, shape=shape)).startswith("inputs[1].shape")


def test_shape_that_overflows_is_rejected() -> None:
    task = TensorInference([TensorSpec(name="b", datatype=Datatype.BYTES, shape=(-1, -1))], [])
    with pytest.raises(InferenceError, match=r"inputs\[0\].shape"):
        task.decode(request(BytesTensor(name="b", shape=(0, 2**64), elements=[])), {}, Limits())


def test_answer_is_available_as_records_and_tensors() -> None:
    tensors = {
        "t": (Datatype.BYTES, np.array([[b"a"], [b"\xff"]], object)),
        "n": (Datatype.FP32, np.array([1.5, np.inf], np.float32)),
        "b": (Datatype.BF16, np.array([0x3F00], np.uint16)),
    }
    answer = Tensors([Tensor(name=name, datatype=datatype, data=data) for name, (datatype, data) in tensors.items()])
    assert Tensors.stack([answer]) is answer.tensors
    assert msgspec.json.decode(msgspec.json.encode(answer.records())) == [
        {"name": "t", "datatype": "BYTES", "shape": [2, 1], "data": ["a", {"b64": "/w=="}]},
        {"name": "n", "datatype": "FP32", "shape": [2], "data": [1.5, None]},
        {"name": "b", "datatype": "BF16", "shape": [1], "data": [0.5]},
    ]
