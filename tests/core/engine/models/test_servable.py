"""A task bound to a model."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from app.core.engine.models.servable import Servable
from app.core.settings.model import ModelError
from tasks.inference.error import ErrorKind, InferenceError, invalid
from tasks.inference.limits import Limits
from tasks.inference.response import InferenceResult
from tasks.inference.tensor import BytesTensor, InputTensor
from tasks.object_detection import DetectionInput, Detections, ObjectDetection
from tasks.task import TaskType
from tests.support.data.images import encode_image, rectangle
from tests.support.data.requests import file_input, request
from tests.support.models.fake_models import stand_in_metadata
from tests.support.rejection import rejects

DESCRIPTION = stand_in_metadata(TaskType.OBJECT_DETECTION)
Detector = Callable[[Sequence[DetectionInput]], Sequence[Detections]]


def detect_full_images(items: Sequence[DetectionInput]) -> Sequence[Detections]:
    """Return each full image as one box."""
    boxes = (np.array([[0, 0, item.image.width, item.image.height]], np.float32) for item in items)
    return [Detections(labels=["it"], scores=np.array([0.6], np.float32), boxes=box) for box in boxes]


def images(name: str, *widths: int, **parameters: object) -> BytesTensor:
    return file_input(*(encode_image(rectangle(width)) for width in widths), name=name, **parameters)


def run_servable(model: Detector, *inputs: InputTensor, defaults: dict[str, object] | None = None) -> InferenceResult:
    servable = Servable(ObjectDetection(), model, DESCRIPTION, defaults or {})
    return servable.predict(request(*inputs), Limits())


def widths(result: InferenceResult) -> list[tuple[str, list[list[float]]]]:
    def of(prediction: Any) -> list[float]:
        return [msgspec.structs.asdict(item)["xmax"] for item in prediction.records()]

    return [(output.name, list(map(of, output.predictions))) for output in result.outputs]


def test_one_call_has_all_images_and_its_outputs_have_the_order_of_the_inputs() -> None:
    calls: list[list[int]] = []

    def recording_model(items: Sequence[DetectionInput]) -> Sequence[Detections]:
        calls.append([item.image.width for item in items])
        return detect_full_images(items)

    result = run_servable(recording_model, images("b", 40, 50), images("a", 60), images("b", 70, 80, 90))
    assert calls == [[40, 50, 60, 70, 80, 90]]
    assert widths(result) == [("b", [[40], [50]]), ("a", [[60]]), ("b", [[70], [80], [90]])]
    assert result.batch_size == 6
    assert min(result.decode_ns, result.model_ns, result.postprocess_ns) > 0


def test_parameters_of_an_input_override_the_model_defaults_for_it() -> None:
    inputs = images("a", 40), images("b", 50, score_threshold=0.1), images("c", 60, score_threshold=0.7)
    result = run_servable(detect_full_images, *inputs, defaults={"score_threshold": 0.9})
    assert widths(result) == [("a", [[]]), ("b", [[50]]), ("c", [[]])]


@pytest.mark.parametrize("excess", [-1, 1])
def test_wrong_number_of_predictions_is_model_failed(excess: int) -> None:
    def wrong_count(items: Sequence[DetectionInput]) -> Sequence[Detections]:
        return [*detect_full_images(items), *detect_full_images(items)][: len(items) + excess]

    with rejects(f"The model answered {2 + excess} of 2 inputs", kind=ErrorKind.MODEL_FAILED):
        run_servable(wrong_count, images("a", 40, 50))


def test_exception_of_a_model_is_model_failed_with_its_cause() -> None:
    def crash(items: Sequence[DetectionInput]) -> Sequence[Detections]:
        raise ZeroDivisionError("by 0")

    with pytest.raises(InferenceError, match="The model failed: by 0") as caught:
        run_servable(crash, images("a", 40))
    assert caught.value.kind is ErrorKind.MODEL_FAILED
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_inference_error_of_a_model_is_not_wrapped() -> None:
    rejection = invalid("Too dark", "inputs[0]")

    def reject(items: Sequence[DetectionInput]) -> Sequence[Detections]:
        raise rejection

    with pytest.raises(InferenceError) as caught:
        run_servable(reject, images("a", 40))
    assert caught.value is rejection


def test_model_is_not_called_if_an_input_is_invalid() -> None:
    def fail_if_called(items: Sequence[DetectionInput]) -> Sequence[Detections]:
        pytest.fail("called")

    with rejects(path="inputs[1].data[0]"):
        run_servable(fail_if_called, images("a", 40), file_input(b"no image"))


def test_invalid_default_parameters_raise_model_error() -> None:
    with pytest.raises(ModelError, match=r"model-settings\.json: parameters\.score_threshold"):
        Servable(ObjectDetection(), detect_full_images, DESCRIPTION, {"score_threshold": "high"})
