"""Outputs of any shape for each image, if the settings declare the task TENSOR and a preprocessing."""

from app.engine.models.model_metadata import Fact, Origin
from app.runtimes.onnxruntime.images.preprocessing import PartialPreprocessing
from app.runtimes.onnxruntime.layouts.layout import GraphView, Layout, Match, TensorDecoder
from tasks.task import TaskType

__all__ = ("TENSORS",)

_DEFAULTS = PartialPreprocessing(resize="stretch", origin=Origin.GUESSED)
"""Clients do not know the placement of an image, so that its whole area should fill the input."""


def _recognise(view: GraphView) -> Match | None:
    if view.declared_task is not TaskType.TENSOR:
        return None
    count = max(view.inputs.batch, 1)
    return Match(
        layout="tensors",
        task_type=TaskType.TENSOR,
        decoder=TensorDecoder(),
        outputs=view.outputs,
        unbatched=any(output.shape[:1] != (count,) for output in view.outputs),
        preprocessing_defaults=_DEFAULTS,
        facts=(Fact("takes", "images, because preprocessing is declared", Origin.DECLARED),),
    )


TENSORS = Layout(
    names=("tensors",), task_types=(TaskType.TENSOR,), expected_outputs="of any shape", recognise=_recognise
)
