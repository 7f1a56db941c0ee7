"""The layouts of core: classes, YOLO, and outputs that are returned unchanged."""

from app.core.runtimes.onnxruntime.images.preprocessing import PartialPreprocessing
from app.core.runtimes.onnxruntime.layouts.classes import CLASSES
from app.core.runtimes.onnxruntime.layouts.layout import GraphView, Layout, Match
from app.core.runtimes.onnxruntime.layouts.yolo import YOLO
from metadata.model import Fact, Origin
from tasks.task import TaskType


def _recognise_tensors(view: GraphView) -> Match | None:
    if view.declared_task is not TaskType.TENSOR:
        return None
    count = max(view.inputs.batch, 1)
    return Match(
        layout="tensors",
        task_type=TaskType.TENSOR,
        outputs=view.outputs,
        unbatched=any(output.shape[:1] != (count,) for output in view.outputs),
        # Clients do not know the placement of an image, so that its whole area should fill the input.
        preprocessing=PartialPreprocessing(resize="stretch", origin=Origin.GUESSED),
        facts=(Fact("takes", "images, because preprocessing is declared", Origin.DECLARED),),
    )


_TENSORS = Layout(("tensors",), (TaskType.TENSOR,), "of any shape", _recognise_tensors)

LAYOUTS = (CLASSES, YOLO, _TENSORS)
"""The families of layouts of core, in any order."""
