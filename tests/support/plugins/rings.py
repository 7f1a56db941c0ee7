"""A plugin with a task type, a layout with a head for it, and an adapter for Python classes."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from app.core.hooks import Plugin, Ref, TaskSupport
from app.core.runtimes.onnxruntime.graph import ImageGraph
from app.core.runtimes.onnxruntime.layouts.layout import Bound, GraphView, Layout, Match
from app.core.runtimes.python.outputs.labelled_scores import read_classification
from app.core.runtimes.python.task_adapters import TaskAdapter
from tasks.image_classification import Classification, ClassificationInput, ImageClassification
from tasks.task import TaskType
from tasks.vision.filtering import SelectionParameters
from tasks.vision.image import Image

RING_COUNT = TaskType.add("RING_COUNT", "image", "classes", "pixels")


class RingCount(ImageClassification):
    """Return how many rings an image has, as classes."""

    task_type = RING_COUNT


def _arguments(item: Any) -> Mapping[str, object]:
    return {"image": item.image.pixels, "parameters": item.parameters}


ADAPTER = TaskAdapter(RingCount(), "image", _arguments, read_classification)
TASKS = (TaskSupport(task_type=RING_COUNT, adapter=Ref(f"{__name__}:ADAPTER")),)


def _predict(graph: ImageGraph, names: Sequence[str], inputs: Sequence[Any], /) -> Sequence[Classification]:
    answers = graph.run([item.image for item in inputs])
    return [Classification(labels=names, scores=answer.outputs[0].ravel()) for answer in answers]


def _head(graph: ImageGraph, _: Match, names: Sequence[str]) -> Bound:
    blank = Image(np.zeros((graph.preprocessing.height, graph.preprocessing.width, 3), np.uint8))
    return RingCount(), partial(_predict, graph, names), ClassificationInput(blank, SelectionParameters())


def _recognise(view: GraphView) -> Match | None:
    if view.declared_layout != "rings":
        return None
    return Match(layout="rings", task_type=RING_COUNT, outputs=view.outputs, head=_head, classes=3)


LAYOUTS = (Layout(("rings",), (RING_COUNT,), "[b, counts]", _recognise),)

plugin = Plugin(
    api=1,
    name="rings",
    summary="Counts rings.",
    task_types=Ref(f"{__name__}:TASKS"),
    layouts=Ref(f"{__name__}:LAYOUTS"),
)
