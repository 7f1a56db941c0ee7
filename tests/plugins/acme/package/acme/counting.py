"""A task type with its adapter for Python classes, and a layout of ONNX models that answer it."""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from charioteer.plugins import (
    Bound,
    Classification,
    ClassificationInput,
    GraphView,
    Image,
    ImageClassification,
    ImageGraph,
    Layout,
    Match,
    Ref,
    SelectionParameters,
    TaskAdapter,
    TaskSupport,
    TaskType,
    read_classification,
)

ACME_COUNT = TaskType.add("ACME_COUNT", "image", "classes", "pixels")


class Count(ImageClassification):
    """Return how many anvils an image has, as classes."""

    task_type = ACME_COUNT


def arguments(item: ClassificationInput) -> Mapping[str, object]:
    """Return the arguments of ``predict`` of a Python class."""
    return {"image": item.image.pixels, "parameters": item.parameters}


ADAPTER = TaskAdapter(Count(), "image", arguments, read_classification)
TASKS = (TaskSupport(task_type=ACME_COUNT, adapter=Ref("acme.counting:ADAPTER")),)


def predict(
    graph: ImageGraph, labels: Sequence[str], inputs: Sequence[ClassificationInput], /
) -> Sequence[Classification]:
    """Return the scores of the graph."""
    answers = graph.run([item.image for item in inputs])
    return [Classification(labels=labels, scores=answer.outputs[0].ravel()) for answer in answers]


def head(graph: ImageGraph, match: Match, labels: Sequence[str]) -> Bound:
    """Return the task, the model and an input with a blank image."""
    blank = Image(np.zeros((graph.preprocessing.height, graph.preprocessing.width, 3), np.uint8))
    return Count(), partial(predict, graph, labels), ClassificationInput(blank, SelectionParameters())


def recognise(view: GraphView) -> Match | None:
    """Return the match of a graph whose settings name the layout."""
    if view.declared_layout != "acme":
        return None
    return Match(layout="acme", task_type=ACME_COUNT, outputs=view.outputs, head=head, classes=3)


LAYOUTS = (Layout(("acme",), (ACME_COUNT,), "[b, counts]", recognise),)
