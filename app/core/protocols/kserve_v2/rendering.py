"""Build the output tensors that a V2 request selects, for REST and gRPC."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from app.core.engine.models.servable import Servable
from app.core.protocols.kserve_v2.binary import reject_shared_memory
from tasks.inference.error import invalid
from tasks.inference.request import Positive, convert
from tasks.inference.response import InferenceResponse
from tasks.inference.tensor import Datatype, Tensor, TensorSpec
from tasks.task import TaskType

RECORDS = TensorSpec(name="predictions", datatype=Datatype.BYTES, shape=(-1,))
"""The default output of a model with a task type: for each image, its records as JSON."""


class _OutputParameters(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of an output.

    Attributes:
        classification: number of best classes to return as "score:index:label"; None for the tensor itself.
        binary_data: whether the tensor follows the JSON as bytes.
    """

    classification: Positive | None = None
    binary_data: bool = False


class RequestedOutput(_OutputParameters, frozen=True, kw_only=True):
    """An output that a request names, and its path in the request, for errors."""

    name: str
    path: str


class OutputSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The outputs that a request selects.

    Attributes:
        outputs: the named outputs, in order; None for all outputs.
        tensors: whether to return a task's predictions as tensors instead of records.
        binary: whether outputs that are not named follow the JSON as bytes.
    """

    outputs: Sequence[RequestedOutput] | None = None
    tensors: bool = False
    binary: bool = False


def declared_outputs(servable: Servable) -> Sequence[TensorSpec]:
    """Return every output that a request may name."""
    if servable.description.task_type is TaskType.TENSOR:
        return servable.outputs
    return (RECORDS, *servable.outputs)


def requested_output(name: str, parameters: Mapping[str, object], path: str) -> RequestedOutput:
    """Return an entry of `outputs`. Raise INVALID_REQUEST naming the parameter under `path`."""
    reject_shared_memory(parameters, f"{path}.parameters")
    read = convert(parameters, _OutputParameters, f"{path}.parameters")
    return RequestedOutput(name=name, path=path, **msgspec.structs.asdict(read))


def select_outputs(
    servable: Servable, outputs: Sequence[RequestedOutput], output_format: object, binary: bool
) -> OutputSelection:
    """Check the selection of outputs against the model's outputs.

    Raise INVALID_REQUEST for an unknown or repeated output, or an unknown format.
    """
    if output_format not in (None, "records", "tensors"):
        raise invalid(f'Expected "records" or "tensors", got {output_format!r}', "parameters.output_format")
    names = [spec.name for spec in declared_outputs(servable)]
    seen: set[str] = set()
    for output in outputs:
        if output.name not in names:
            raise invalid(f"Expected one of {', '.join(map(repr, names))}, got {output.name!r}", f"{output.path}.name")
        if output.name in seen:
            raise invalid(f"Expected each output once, got {output.name!r} again", f"{output.path}.name")
        seen.add(output.name)
    return OutputSelection(outputs=outputs or None, tensors=output_format == "tensors", binary=binary)


def output_parameters(response: InferenceResponse) -> Mapping[str, object]:
    """Return the parameters of every output tensor. Each tensor holds the predictions for all inputs of the request.

    With several inputs, each parameter has the prefix ``inputs[<index>].`` with the input's index in the request.
    """
    if len(response.outputs) == 1:
        return response.outputs[0].parameters
    return {
        f"inputs[{output.index}].{name}": value
        for output in response.outputs
        for name, value in output.parameters.items()
    }


def render(response: InferenceResponse, servable: Servable, selection: OutputSelection) -> list[tuple[Tensor, bool]]:
    """Return the selected tensors in order, each with whether it follows the JSON as bytes."""
    is_tensor_model = servable.description.task_type is TaskType.TENSOR
    if selection.outputs is None:
        as_tensors = selection.tensors or is_tensor_model
        return [(tensor, selection.binary) for tensor in (response.stack() if as_tensors else [_records(response)])]
    tensors = {tensor.name: tensor for tensor in response.stack()}
    if RECORDS.name not in tensors and any(output.name == RECORDS.name for output in selection.outputs):
        tensors[RECORDS.name] = _records(response)
    # A task returns its labels beside its scores; a tensor model has labels only in its description.
    labels_by_index, siblings = (servable.description.labels, {}) if is_tensor_model else ((), tensors)
    return [
        (_classify(tensors[output.name], siblings, output, labels_by_index), output.binary_data)
        for output in selection.outputs
    ]


def _records(response: InferenceResponse) -> Tensor:
    records = [msgspec.json.encode(prediction.records()) for prediction in response.predictions]
    return Tensor(name=RECORDS.name, datatype=Datatype.BYTES, data=np.array(records, object))


def _classify(
    tensor: Tensor, siblings: Mapping[str, Tensor], requested: RequestedOutput, labels_by_index: Sequence[str]
) -> Tensor:
    """Return the best scores of the last dimension as "score:index[:label]", as in the classification extension.

    Args:
        tensor: the scores.
        siblings: the outputs of a task by name; `labels` and `class_ids` with the same shape name each score.
        requested: the number of scores.
        labels_by_index: labels used if there is one for each score of a row.
    """
    if requested.classification is None:
        return tensor
    if tensor.datatype in (Datatype.BYTES, Datatype.BF16) or not tensor.shape:
        raise invalid(
            f"Expected an output of numbers to classify, {tensor.name!r} is {tensor.datatype}", requested.path
        )
    rows = tensor.data.reshape(math.prod(tensor.shape[:-1]), tensor.shape[-1])
    count = min(requested.classification, rows.shape[1])
    best = np.argsort(-rows.astype(np.float64), axis=1, kind="stable")[:, :count]
    # A task sorts its scores; the labels and class indices are in separate tensors.
    by_score: dict[str, Any] = {
        name: other.data.reshape(rows.shape) for name, other in siblings.items() if other.shape == tensor.shape
    }
    labels = labels_by_index if len(labels_by_index) == rows.shape[1] else [""] * rows.shape[1]
    names = by_score.get("labels", [[label.encode() for label in labels]] * len(rows))
    numbers = by_score.get("class_ids", [range(rows.shape[1])] * len(rows))
    # Triton prints floating-point numbers with six decimals (std::to_string), and integers without decimals.
    number_format = "f" if rows.dtype.kind == "f" else ""
    class_texts = [
        f"{rows[row, index]:{number_format}}:{numbers[row][index]}".encode()
        + (b":" + label if (label := names[row][index]) else b"")
        for row, indices in enumerate(best.tolist())
        for index in indices
    ]
    data = np.array(class_texts, object).reshape(*tensor.shape[:-1], count)
    return Tensor(name=tensor.name, datatype=Datatype.BYTES, data=data)
