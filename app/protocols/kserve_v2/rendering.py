"""Answers as the tensors that a V2 request asked for, the same over REST and gRPC."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.engine.servable import Servable
from tasks.exchange.error import invalid
from tasks.exchange.response import InferenceResponse, Prediction
from tasks.exchange.tensor import Datatype, Tensor, TensorSpec
from tasks.task import TaskType

__all__ = ("RECORDS", "RequestedOutput", "Wanted", "declared_outputs", "render", "wanted_outputs")

RECORDS = TensorSpec(name="predictions", datatype=Datatype.BYTES, shape=(-1,))
"""What a model with a task type answers unless asked for tensors: for each image, its records as JSON."""


class RequestedOutput(msgspec.Struct, frozen=True, kw_only=True):
    """One output that a request names.

    Attributes:
        name: of the tensor.
        classification: give so many of the best classes instead, as "score:index:label"; None for the tensor itself.
        binary: whether the tensor is to follow the JSON as bytes.
        path: where the request names it, for errors.
    """

    name: str
    classification: int | None = None
    binary: bool = False
    path: str = "outputs"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a request asks to be answered with.

    Attributes:
        outputs: the outputs it names, in its order; None for all.
        tensors: whether a task's predictions are wanted as tensors rather than as records.
        binary: whether outputs that it does not name are to follow the JSON as bytes.
    """

    outputs: Sequence[RequestedOutput] | None = None
    tensors: bool = False
    binary: bool = False


def declared_outputs(servable: Servable) -> Sequence[TensorSpec]:
    """Every output that a request may name."""
    if servable.description.task_type is TaskType.TENSOR:
        return servable.outputs
    return (RECORDS, *servable.outputs)


def wanted_outputs(
    servable: Servable, outputs: Sequence[RequestedOutput] | None, output_format: object, binary: bool
) -> Wanted:
    """Check what a request asks for against what the model gives.

    Raises:
        InferenceError: INVALID_REQUEST for an output that is unknown, or named twice, or a format that is unknown.
    """
    if output_format not in (None, "records", "tensors"):
        raise invalid(f'Expected "records" or "tensors", got {output_format!r}', "parameters.output_format")
    names = [spec.name for spec in declared_outputs(servable)]
    seen: set[str] = set()
    for output in outputs or ():
        if output.name not in names:
            raise invalid(f"Expected one of {', '.join(map(repr, names))}, got {output.name!r}", f"{output.path}.name")
        if output.name in seen:
            raise invalid(f"Expected each output once, got {output.name!r} again", f"{output.path}.name")
        seen.add(output.name)
    return Wanted(outputs=outputs or None, tensors=output_format == "tensors", binary=binary)


def render(response: InferenceResponse, servable: Servable, wanted: Wanted) -> list[tuple[Tensor, bool]]:
    """The tensors wanted, in the order wanted, each with whether it is wanted as bytes after the JSON."""
    predictions = [prediction for output in response.outputs for prediction in output.predictions]
    if wanted.outputs is None:
        return [(tensor, wanted.binary) for tensor in _all(predictions, servable, wanted.tensors)]
    named = {RECORDS.name} & {output.name for output in wanted.outputs}
    tensors = {tensor.name: tensor for tensor in type(predictions[0]).stack(predictions)}
    if named and RECORDS.name not in tensors:
        tensors[RECORDS.name] = _records(predictions)
    return [(_classified(tensors[each.name], tensors, each), each.binary) for each in wanted.outputs]


def _all(predictions: Sequence[Prediction], servable: Servable, as_tensors: bool) -> Sequence[Tensor]:
    if as_tensors or servable.description.task_type is TaskType.TENSOR:
        return type(predictions[0]).stack(predictions)
    return [_records(predictions)]


def _records(predictions: Sequence[Prediction]) -> Tensor:
    data = np.empty(len(predictions), object)
    data[:] = [msgspec.json.encode(each.records()) for each in predictions]
    return Tensor(name=RECORDS.name, datatype=Datatype.BYTES, data=data)


def _classified(tensor: Tensor, siblings: Mapping[str, Tensor], wanted: RequestedOutput) -> Tensor:
    """The classification extension: the best scores of the last dimension as "score:index[:label]"."""
    if wanted.classification is None:
        return tensor
    if tensor.datatype in (Datatype.BYTES, Datatype.BF16) or not tensor.shape:
        raise invalid(f"Expected an output of numbers to classify, {tensor.name!r} is {tensor.datatype}", wanted.path)
    labels, class_ids = (siblings.get(name) for name in ("labels", "class_ids"))
    rows = tensor.data.reshape(math.prod(tensor.shape[:-1]), tensor.shape[-1])
    count = min(wanted.classification, rows.shape[1])
    best = np.argsort(-rows.astype(np.float64), axis=1, kind="stable")[:, :count]
    written = np.empty(best.shape, object)
    for row, indices in enumerate(best.tolist()):
        names = labels.data.reshape(rows.shape)[row] if labels is not None and labels.shape == tensor.shape else None
        # A task's scores are in their own order; the class numbers stand in a tensor beside them.
        numbers = (
            class_ids.data.reshape(rows.shape)[row]
            if class_ids is not None and class_ids.shape == tensor.shape
            else None
        )
        written[row] = [_class_text(rows[row], index, names, numbers) for index in indices]
    return Tensor(name=tensor.name, datatype=Datatype.BYTES, data=written.reshape(*tensor.shape[:-1], count))


def _class_text(scores: NDArray[Any], index: int, names: NDArray[Any] | None, numbers: NDArray[Any] | None) -> bytes:
    # Triton prints floating-point numbers with six decimals (std::to_string) and integers as they are.
    score = f"{scores[index]:f}" if scores.dtype.kind == "f" else str(scores[index])
    label = b":" + names[index] if names is not None and names[index] else b""
    return f"{score}:{index if numbers is None else numbers[index]}".encode() + label
