"""A task bound to a model."""

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import pytest

from app.engine.answered import InferenceResult
from app.engine.description import ModelDescription
from app.engine.servable import BoundServable
from app.protocols.bytes_elements import BinaryElement
from app.settings.model import ModelError
from tasks.exchange.error import ErrorKind, InferenceError, invalid
from tasks.exchange.limits import Limits
from tasks.exchange.request import InferenceRequest
from tasks.exchange.tensor import BytesTensor, InputTensor
from tasks.object_detection import DetectionInput, Detections, ObjectDetection
from tasks.task import TaskType
from tests.support.pictures import encoded, rectangle

DESCRIPTION = ModelDescription(
    task_type=TaskType.OBJECT_DETECTION, platform="none", layout="none", labels=(), inputs=(), outputs=(), facts=()
)
Detector = Callable[[Sequence[DetectionInput]], Sequence[Detections]]


def whole(item: DetectionInput) -> Detections:
    """The whole image as one box."""
    box = np.array([[0, 0, item.image.width, item.image.height]], np.float32)
    return Detections(labels=["it"], scores=np.array([0.6], np.float32), boxes=box)


def every(items: Sequence[DetectionInput]) -> Sequence[Detections]:
    return [whole(item) for item in items]


def images(name: str, *widths: int, **parameters: object) -> BytesTensor:
    elements = [BinaryElement(encoded(rectangle(width))) for width in widths]
    return BytesTensor(name=name, shape=(len(widths),), elements=elements, parameters=parameters)


def answer(
    model: Detector, *inputs: InputTensor, defaults: dict[str, object] | None = None, limits: Limits | None = None
) -> InferenceResult:
    servable = BoundServable(ObjectDetection(), model, DESCRIPTION, defaults or {})
    return servable.answer(InferenceRequest(id="r", model_name="m", inputs=inputs), limits or Limits())


def widths(answered: InferenceResult) -> list[tuple[str, list[list[float]]]]:
    return [
        (
            output.name,
            [[msgspec.structs.asdict(item)["xmax"] for item in each.records()] for each in output.predictions],
        )
        for output in answered.outputs
    ]


def test_outputs_follow_the_inputs_and_hold_their_images_in_order() -> None:
    answered = answer(every, images("b", 40, 50), images("a", 60), images("b", 70, 80, 90))
    assert widths(answered) == [("b", [[40], [50]]), ("a", [[60]]), ("b", [[70], [80], [90]])]
    assert answered.batch_size == 6


def test_the_model_is_called_once_with_all_images() -> None:
    calls: list[list[int]] = []

    def spy(items: Sequence[DetectionInput]) -> Sequence[Detections]:
        calls.append([item.image.width for item in items])
        return every(items)

    answer(spy, images("a", 40), images("b", 50, 60))
    assert calls == [[40, 50, 60]]


def test_each_input_is_narrowed_by_its_own_parameters() -> None:
    answered = answer(
        every, images("a", 40, score_threshold=0.7), images("b", 50), images("c", 60, score_threshold=0.6)
    )
    assert widths(answered) == [("a", [[]]), ("b", [[50]]), ("c", [[60]])]


def test_the_models_defaults_are_under_the_requests_parameters() -> None:
    answered = answer(every, images("a", 40), images("b", 50, score_threshold=0.1), defaults={"score_threshold": 0.9})
    assert widths(answered) == [("a", [[]]), ("b", [[50]])]


def test_an_outputs_parameters_are_its_inputs_own() -> None:
    answered = answer(every, images("a", 40, metadata="x"), images("b", 50))
    assert [dict(output.parameters) for output in answered.outputs] == [{"metadata": "x"}, {}]


@pytest.mark.parametrize("excess", [-1, 1])
def test_a_model_that_answers_another_number_of_images_has_failed(excess: int) -> None:
    def wrong(items: Sequence[DetectionInput]) -> Sequence[Detections]:
        return [whole(items[0])] * (len(items) + excess)

    with pytest.raises(InferenceError, match=f"The model answered {2 + excess} of 2 inputs") as caught:
        answer(wrong, images("a", 40, 50))
    assert caught.value.kind is ErrorKind.MODEL_FAILED


def test_what_a_model_raises_is_its_failure_and_keeps_its_cause() -> None:
    def crash(items: Sequence[DetectionInput]) -> Sequence[Detections]:
        raise ZeroDivisionError("by 0")

    with pytest.raises(InferenceError, match="The model failed: by 0") as caught:
        answer(crash, images("a", 40))
    assert caught.value.kind is ErrorKind.MODEL_FAILED
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_refusal_by_the_model_is_passed_on_as_it_is() -> None:
    refusal = invalid("Too dark", "inputs[0]")

    def refuse(items: Sequence[DetectionInput]) -> Sequence[Detections]:
        raise refusal

    with pytest.raises(InferenceError) as caught:
        answer(refuse, images("a", 40))
    assert caught.value is refusal


def test_the_model_is_not_called_when_an_input_cannot_be_read() -> None:
    def never(items: Sequence[DetectionInput]) -> Sequence[Detections]:
        pytest.fail("called")

    broken = BytesTensor(name="b", shape=(1,), elements=[BinaryElement(b"no image")])
    with pytest.raises(InferenceError) as caught:
        answer(never, images("a", 40), broken)
    assert caught.value.path == "inputs[1].data[0]"


def test_limits_are_those_of_the_call() -> None:
    with pytest.raises(InferenceError, match="at most 1 images"):
        answer(every, images("a", 40, 50), limits=Limits(max_inputs=1))
    with pytest.raises(InferenceError, match="at most 9 pixels"):
        answer(every, images("a", 40), limits=Limits(max_pixels=9))


def test_timings_cover_the_three_parts() -> None:
    timings = answer(every, images("a", 40)).timings
    assert timings.decode > 0
    assert timings.model > 0
    assert timings.refine > 0


def test_defaults_that_the_task_does_not_take_are_the_owners_fault() -> None:
    def model(inputs: Sequence[DetectionInput]) -> Sequence[Detections]:
        return [whole(item) for item in inputs]

    with pytest.raises(ModelError, match=r"model-settings\.json: parameters\.score_threshold"):
        BoundServable(ObjectDetection(), model, DESCRIPTION, {"score_threshold": "high"})
